/* Included once for each instruction set, without a guard, after spmm_types.h: instantiates attention for every type.
 *
 * MOST_HEADS                  heads that are computed together: 1, 4 or 8; in float64, which is for checks, 1
 * ATTEND_ENTRY, HEADS_ENTRY   names of the functions that this file defines
 */
#define MOST_ENTRIES 64
#define MOST_NUMBERS (MOST_ENTRIES * 8)
/* Vectors whose lanes are summed together. */
#define MOST_PENDING 64
/* Entries of a row or column whose float32 sums are then added in float64, if it has more. Sums of 512 nearly equal
 * numbers, one after the other, have relative errors of at most 1e-5; those of a million could have 3e-2. */
#define ATTENTION_SEGMENT 512
/* Blocks whose sums, and as many values, fit the registers; a head may have 4. */
#define MOST_VECTORS (MOST_HEADS > 4 ? MOST_HEADS : 4)

#define BINARY_1 0
#define BINARY_2 1
#define BINARY_4 2
#define BINARY_8 3
/* Numbers of heads and blocks, by the most heads and blocks. */
#define PANELS_1_2(DO) DO(1, 1) DO(1, 2)
#define PANELS_1_3(DO) PANELS_1_2(DO) DO(1, 3)
#define PANELS_1_4(DO) PANELS_1_3(DO) DO(1, 4)
#define PANELS_4_2(DO) PANELS_1_2(DO) DO(2, 1) DO(4, 1) DO(2, 2)
#define PANELS_4_3(DO) PANELS_4_2(DO) DO(1, 3)
#define PANELS_4_4(DO) PANELS_4_3(DO) DO(1, 4)
#define PANELS_8_2(DO) PANELS_4_2(DO) DO(8, 1) DO(4, 2)
#define PANELS_8_3(DO) PANELS_8_2(DO) DO(1, 3) DO(2, 3)
#define PANELS_8_4(DO) PANELS_8_3(DO) DO(1, 4) DO(2, 4)

/* Lanes of two vectors, by the lanes of one: the lower and the upper halves of their groups of lanes. */
#define LOWER_8_OF_16 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define UPPER_8_OF_16 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#define LOWER_4_OF_16 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define UPPER_4_OF_16 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31
#define LOWER_2_OF_16 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29
#define UPPER_2_OF_16 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31
#define LOWER_1_OF_16 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define UPPER_1_OF_16 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define LOWER_4_OF_8 0, 1, 2, 3, 8, 9, 10, 11
#define UPPER_4_OF_8 4, 5, 6, 7, 12, 13, 14, 15
#define LOWER_2_OF_8 0, 1, 4, 5, 8, 9, 12, 13
#define UPPER_2_OF_8 2, 3, 6, 7, 10, 11, 14, 15
#define LOWER_1_OF_8 0, 2, 4, 6, 8, 10, 12, 14
#define UPPER_1_OF_8 1, 3, 5, 7, 9, 11, 13, 15
#define LOWER_2_OF_4 0, 1, 4, 5
#define UPPER_2_OF_4 2, 3, 6, 7
#define LOWER_1_OF_4 0, 2, 4, 6
#define UPPER_1_OF_4 1, 3, 5, 7
#define LOWER_1_OF_2 0, 2
#define UPPER_1_OF_2 1, 3

INLINE int64_t id_of(const void *ids, int wide, int64_t entry) {
    return wide ? ((const int64_t *)ids)[entry] : ((const int32_t *)ids)[entry];
}

#define TEMPLATE "attention_sizes.h"
#include "each_type.h"

/* Room for the sums and the values of a few heads, which wide heads take from the heap. */
#define SCRATCH_BYTES 65536

int ATTEND_ENTRY(const struct gnnloom_attention *given, int64_t number, int64_t start, int64_t stop) {
    double local[SCRATCH_BYTES / sizeof(double)] __attribute__((aligned(64)));
    /* Of 8 heads, twice or four times, and once or twice in float64; of GATv2 also of all heads, three times. */
    const size_t rows = given->step < GNNLOOM_ATTEND_V2 ? 32 : 64 + 3 * ((size_t)given->heads + 1);
    const size_t needed = rows * ((size_t)given->dim + 16) * (given->dtype == GNNLOOM_FLOAT64 ? 8 : 4);
    void *const scratch = needed <= sizeof local ? local : malloc(needed);
    if (!scratch)
        return 0;
    if (given->dtype == GNNLOOM_FLOAT32)
        attend_float32_(given, number, start, stop, scratch);
    else if (given->dtype == GNNLOOM_FLOAT64)
        attend_float64_(given, number, start, stop, scratch);
    else
        attend_bfloat16_(given, number, start, stop, scratch);
    if (scratch != local)
        free(scratch);
    return 1;
}

void HEADS_ENTRY(const struct gnnloom_heads *given, int64_t start, int64_t stop) {
    if (given->dtype == GNNLOOM_FLOAT32)
        heads_float32_(given, start, stop);
    else if (given->dtype == GNNLOOM_FLOAT64)
        heads_float64_(given, start, stop);
    else
        heads_bfloat16_(given, start, stop);
}
