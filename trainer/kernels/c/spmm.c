/* The functions that Python calls, and the choice of the instruction set. */
#include "spmm.h"

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

/* Compute rows `start` to `stop` of the list with an instruction set that the processor supports. */
PUBLIC void gnnloom_spmm(const struct gnnloom_product *product, int64_t start, int64_t stop, int32_t instruction_set) {
#if GNNLOOM_X86
    if (instruction_set == AVX512) {
        gnnloom_spmm_avx512(product, start, stop);
        return;
    }
    if (instruction_set == AVX2) {
        gnnloom_spmm_avx2(product, start, stop);
        return;
    }
#endif
    (void)instruction_set;
    gnnloom_spmm_portable(product, start, stop);
}
