/* The functions that Python calls, and the choice of the instruction set. */
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

typedef void spmm(const struct gnnloom_product *product, int64_t start, int64_t stop);

/* Ranges of rows, which the threads take one after the other. */
struct work {
    const struct gnnloom_product *product;
    const int64_t *bounds;
    int64_t num_ranges;
    int64_t next;
    spmm *kernel;
};

static void take_ranges(void *data) {
    struct work *work = data;
    int64_t range;
    while ((range = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED)) < work->num_ranges)
        work->kernel(work->product, work->bounds[range], work->bounds[range + 1]);
}

static spmm *kernel_of(int32_t instruction_set) {
#if GNNLOOM_X86
    if (instruction_set == AVX512)
        return gnnloom_spmm_avx512;
    if (instruction_set == AVX2)
        return gnnloom_spmm_avx2;
#endif
    (void)instruction_set;
    return gnnloom_spmm_portable;
}

/* Compute the rows of a list between bounds[0] and bounds[num_ranges], range by range, with an instruction set that the
 * processor supports. Without a team the calling thread computes all of them. */
PUBLIC void gnnloom_spmm(const struct gnnloom_product *product, const int64_t *bounds, int64_t num_ranges,
                         int32_t instruction_set, start_team *team, int32_t threads) {
    struct work work = {product, bounds, num_ranges, 0, kernel_of(instruction_set)};
    if (team && threads > 1)
        team(take_ranges, &work, (unsigned)threads, 0);
    else
        take_ranges(&work);
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
