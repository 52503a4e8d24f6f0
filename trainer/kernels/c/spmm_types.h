/* Included once for each instruction set, without a guard: instantiates the kernel for every type and vector size.
 *
 * WIDEST       bytes of a vector register
 * MOST_SUMS    blocks of columns whose sums fit the registers; MOST_PAIRS for bfloat16, whose blocks have two vectors;
 *              and MOST_DOUBLES for float64, which is for checks: half as many, as each takes time to compile
 * STREAM       store of an aligned vector around the caches, where there is one
 * FENCE        waits for such stores
 * ENTRY        name of the function that this file defines
 */
#define JOIN_(first, second) first##second
#define JOIN(first, second) JOIN_(first, second)
#define INLINE static inline __attribute__((always_inline))
/* APART: a function that is neither copied into others nor made several times for constants: there would be dozens of
 * it. VECTORIZED: a function whose loops become vectors, or are unrolled, which takes two to three times as long to
 * compile, and so is not done in float64. */
#ifdef __clang__
#define APART static __attribute__((noinline))
#define VECTORIZED_4 static
#else
#define APART static __attribute__((noinline, noclone))
#define VECTORIZED_4 static __attribute__((optimize("O3")))
#endif
#define VECTORIZED_8 static
#define VECTORIZED JOIN(VECTORIZED_, SUM_BYTES)
#define CACHE_LINE 64
/* Bytes of dense rows between the one that is added and the one that is prefetched: a quarter of a first-level cache.
 * Narrow rows are limited by their number. */
#define BYTES_AHEAD 12288
#define MOST_AHEAD 64
/* Rows of some bytes between the two. */
#define ahead_of(bytes) (BYTES_AHEAD / (bytes) < MOST_AHEAD ? BYTES_AHEAD / (bytes) : MOST_AHEAD)
/* A loop whose bound is a constant wherever it is compiled: unrolled, so that arrays of vectors become registers. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define EACH(number, bound) UNROLL for (int number = 0; number < (bound); number++)

#define UP_TO_2(DO) DO(1) DO(2)
#define UP_TO_4(DO) UP_TO_2(DO) DO(3) DO(4)
#define UP_TO_8(DO) UP_TO_4(DO) DO(5) DO(6) DO(7) DO(8)

/* Lanes of two vectors of float32 one after the other, by the bytes of a vector: those of the lower and of the upper
 * half of both, alternating, and the even and the odd ones. */
#define LOWER_4 0
#define UPPER_4 1
#define EVEN_4 0
#define ODD_4 1
#define LOWER_8 0, 2
#define UPPER_8 1, 3
#define EVEN_8 0, 2
#define ODD_8 1, 3
#define LOWER_16 0, 4, 1, 5
#define UPPER_16 2, 6, 3, 7
#define EVEN_16 0, 2, 4, 6
#define ODD_16 1, 3, 5, 7
#define LOWER_32 0, 8, 1, 9, 2, 10, 3, 11
#define UPPER_32 4, 12, 5, 13, 6, 14, 7, 15
#define EVEN_32 0, 2, 4, 6, 8, 10, 12, 14
#define ODD_32 1, 3, 5, 7, 9, 11, 13, 15
#define LOWER_64 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define UPPER_64 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define EVEN_64 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD_64 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31

/* Entries of a row whose float32 sums are then added in float64, if it has more: 256 additions one after the other, or
 * 512 with weights, have relative errors of at most 1e-5, and those of a million entries could have 1e-2. */
#define SEGMENT 1024

/* What the entries are multiplied with. */
enum factors { ONES, WEIGHTS, COLUMN_SCALE, COLUMN_RUNS };

INLINE int64_t column_of(const struct gnnloom_product *product, int64_t entry) {
    return product->wide_columns ? ((const int64_t *)product->columns)[entry]
                                 : ((const int32_t *)product->columns)[entry];
}

INLINE int64_t smaller(int64_t one, int64_t other) {
    return one < other ? one : other;
}

/* Columns `first` to `first + width` of some rows. */
typedef void panel_kernel(const struct gnnloom_product *product, int64_t start, int64_t stop, int64_t first,
                          int64_t width);

#define DOUBLES (WIDEST / 8)
typedef double doubles __attribute__((vector_size(DOUBLES * 8), aligned(8), may_alias));
typedef float floats __attribute__((vector_size(DOUBLES * 4), aligned(4), may_alias));

/* Add float32 sums of a segment to those of a whole row, which these are if it begins. */
APART void add_segment(double *whole, const float *sums, int64_t length, int begins) {
    int64_t at = 0;
    for (; at + DOUBLES <= length; at += DOUBLES) {
        const doubles added = __builtin_convertvector(*(const floats *)(sums + at), doubles);
        if (begins)
            *(doubles *)(whole + at) = added;
        else
            *(doubles *)(whole + at) += added;
    }
    for (; at < length; at++)
        whole[at] = begins ? sums[at] : whole[at] + sums[at];
}

#define TEMPLATE "spmm_sizes.h"
#include "each_type.h"

void ENTRY(const struct gnnloom_product *product, int64_t start, int64_t stop) {
    if (product->dtype == GNNLOOM_FLOAT32)
        spmm_float32_(product, start, stop);
    else if (product->dtype == GNNLOOM_FLOAT64)
        spmm_float64_(product, start, stop);
    else
        spmm_bfloat16_(product, start, stop);
#ifdef FENCE
    FENCE();
#endif
}
