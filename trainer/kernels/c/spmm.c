/* The functions that Python calls, and the choice of the instruction set. */
#include "attention.h"
#include "rectify.h"

#define PUBLIC __attribute__((visibility("default")))

/* Widest first. */
enum instruction_set { AVX512, AVX2, PORTABLE };

PUBLIC int32_t gnnloom_abi(void) {
    return GNNLOOM_ABI;
}

/* The widest instruction set that this processor and its operating system support. */
PUBLIC int32_t gnnloom_best_instruction_set(void) {
#if GNNLOOM_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        return AVX512;
    if (__builtin_cpu_supports("avx2"))
        return AVX2;
#endif
    return PORTABLE;
}

/* Starts a team of threads that call a function, and waits for them: GOMP_parallel. */
typedef void start_team(void (*function)(void *), void *data, unsigned threads, unsigned flags);

/* Computes a range of rows of what is described; 0 if there is no memory. */
typedef int range_kernel(const void *given, int32_t instruction_set, int64_t number, int64_t start, int64_t stop);

/* Ranges of rows, which the threads take one after the other. */
struct work {
    range_kernel *kernel;
    const void *given;
    const int64_t *bounds;
    int64_t num_ranges;
    int64_t next;
    int32_t instruction_set;
    int32_t failed;
};

static void take_ranges(void *data) {
    struct work *work = data;
    int64_t range;
    while ((range = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED)) < work->num_ranges)
        if (!work->kernel(work->given, work->instruction_set, range, work->bounds[range], work->bounds[range + 1]))
            __atomic_store_n(&work->failed, 1, __ATOMIC_RELAXED);
}

/* Compute all ranges; 0 if there was no memory. Without a team the calling thread computes all of them. */
static int share(struct work work, start_team *team, int32_t threads) {
    if (team && threads > 1)
        team(take_ranges, &work, (unsigned)threads, 0);
    else
        take_ranges(&work);
    return !work.failed;
}

static int multiply(const void *given, int32_t instruction_set, int64_t number, int64_t start, int64_t stop) {
#if GNNLOOM_X86
    if (instruction_set == AVX512) {
        gnnloom_spmm_avx512(given, start, stop);
        return 1;
    }
    if (instruction_set == AVX2) {
        gnnloom_spmm_avx2(given, start, stop);
        return 1;
    }
#endif
    (void)instruction_set, (void)number;
    gnnloom_spmm_portable(given, start, stop);
    return 1;
}

static int attend(const void *given, int32_t instruction_set, int64_t number, int64_t start, int64_t stop) {
#if GNNLOOM_X86
    if (instruction_set == AVX512)
        return gnnloom_attend_avx512(given, number, start, stop);
    if (instruction_set == AVX2)
        return gnnloom_attend_avx2(given, number, start, stop);
#endif
    (void)instruction_set;
    return gnnloom_attend_portable(given, number, start, stop);
}

static int over_heads(const void *given, int32_t instruction_set, int64_t number, int64_t start, int64_t stop) {
#if GNNLOOM_X86
    if (instruction_set == AVX512) {
        gnnloom_heads_avx512(given, start, stop);
        return 1;
    }
    if (instruction_set == AVX2) {
        gnnloom_heads_avx2(given, start, stop);
        return 1;
    }
#endif
    (void)instruction_set, (void)number;
    gnnloom_heads_portable(given, start, stop);
    return 1;
}

/* Compute the rows of a list between bounds[0] and bounds[num_ranges], range by range, with an instruction set that the
 * processor supports. Without a team the calling thread computes all of them. */
PUBLIC void gnnloom_spmm(const struct gnnloom_product *product, const int64_t *bounds, int64_t num_ranges,
                         int32_t instruction_set, start_team *team, int32_t threads) {
    share((struct work){multiply, product, bounds, num_ranges, 0, instruction_set, 0}, team, threads);
}

/* The same of a step of attention; 0 if there was no memory. */
PUBLIC int32_t gnnloom_attend(const struct gnnloom_attention *given, const int64_t *bounds, int64_t num_ranges,
                              int32_t instruction_set, start_team *team, int32_t threads) {
    return share((struct work){attend, given, bounds, num_ranges, 0, instruction_set, 0}, team, threads);
}

/* The same of a pass over heads, whose bounds are chunks of rows. */
PUBLIC void gnnloom_heads(const struct gnnloom_heads *given, const int64_t *bounds, int64_t num_ranges,
                          int32_t instruction_set, start_team *team, int32_t threads) {
    share((struct work){over_heads, given, bounds, num_ranges, 0, instruction_set, 0}, team, threads);
}

/* Compute rows `start` to `stop` of a pass with an instruction set that the processor supports. */
PUBLIC void gnnloom_rows(const struct gnnloom_rows *rows, int64_t start, int64_t stop, int32_t instruction_set) {
#if GNNLOOM_X86
    if (instruction_set == AVX512) {
        gnnloom_rows_avx512(rows, start, stop);
        return;
    }
    if (instruction_set == AVX2) {
        gnnloom_rows_avx2(rows, start, stop);
        return;
    }
#endif
    (void)instruction_set;
    gnnloom_rows_portable(rows, start, stop);
}
