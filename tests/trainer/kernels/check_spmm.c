/* Calls the kernel with every instruction set, type and width on memory that has not a byte too many, for `make
 * sanitize`: the address sanitizer reports what is read or written beyond it. Results are compared with plain loops. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../trainer/kernels/c/product.h"

enum { ROWS = 37, RUN = 1 << GNNLOOM_RUN_BITS, RUNS = 2, COLUMNS = RUN + 23, MOST_WIDTH = 300 };
enum {
    WEIGHTED = 1,
    ROW_SCALED = 2,
    COLUMN_SCALED = 4,
    ACCUMULATED = 8,
    LISTED = 16,
    WIDE = 32,
    STREAMED = 64,
    WIDE_OUT = 128,
    CASES = 256
};

int32_t gnnloom_best_instruction_set(void);
void gnnloom_spmm(const struct gnnloom_product *product, const int64_t *bounds, int64_t num_ranges,
                  int32_t instruction_set, void *team, int32_t threads);

static uint32_t state = 1;

static int64_t random_below(int64_t bound) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % bound;
}

static size_t size_of(int32_t dtype) {
    return dtype == GNNLOOM_FLOAT64 ? 8 : dtype == GNNLOOM_FLOAT32 ? 4 : 2;
}

/* The sums' type of a matrix's type. */
static int32_t sums_of(int32_t dtype) {
    return dtype == GNNLOOM_BFLOAT16 ? GNNLOOM_FLOAT32 : dtype;
}

static double get(const void *array, int64_t at, int32_t dtype) {
    if (dtype == GNNLOOM_FLOAT64)
        return ((const double *)array)[at];
    if (dtype == GNNLOOM_FLOAT32)
        return ((const float *)array)[at];
    const uint32_t bits = (uint32_t)((const uint16_t *)array)[at] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The output's type. */
static int32_t out_of(const struct gnnloom_product *product) {
    return product->wide_out ? sums_of(product->dtype) : product->dtype;
}

/* Eighths from -2 to 2, which every type holds exactly. */
static void *random_array(int64_t length, int32_t dtype) {
    char *array = malloc((size_t)length * size_of(dtype) + 1);
    array = realloc(array, (size_t)length * size_of(dtype));
    for (int64_t at = 0; at < length; at++) {
        const float value = (float)(random_below(33) - 16) / 8;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (dtype == GNNLOOM_FLOAT64)
            ((double *)array)[at] = value;
        else if (dtype == GNNLOOM_FLOAT32)
            ((float *)array)[at] = value;
        else
            ((uint16_t *)array)[at] = (uint16_t)(bits >> 16);
    }
    return array;
}

static double expected(const struct gnnloom_product *product, const void *before, int64_t listed, int64_t at) {
    const int64_t target = product->target ? product->target[listed] : listed;
    const int32_t sums = sums_of(product->dtype);
    double total = 0;
    for (int64_t entry = product->begin[listed]; entry < product->end[listed]; entry++) {
        const int64_t column = product->wide_columns ? ((const int64_t *)product->columns)[entry]
                                                     : ((const int32_t *)product->columns)[entry];
        const double weight = product->values         ? get(product->values, entry, sums)
                              : product->column_scale ? get(product->column_scale, column, sums)
                                                      : 1;
        total += weight * get(product->dense, column * product->dense_stride + at, product->dtype);
    }
    if (product->row_scale)
        total *= get(product->row_scale, target, sums);
    return total + (product->accumulate ? get(before, target * product->out_stride + at, out_of(product)) : 0);
}

static int differs(const struct gnnloom_product *product, int64_t num_listed, const void *before) {
    const double eps = out_of(product) == GNNLOOM_BFLOAT16 ? 1.0 / 128 : 1e-5;
    for (int64_t listed = 0; listed < num_listed; listed++)
        for (int64_t at = 0; at < product->dim; at++) {
            const int64_t target = product->target ? product->target[listed] : listed;
            const double found = get(product->out, target * product->out_stride + at, out_of(product));
            const double wanted = expected(product, before, listed, at);
            if (!(fabs(found - wanted) <= eps * (1 + fabs(wanted))))
                return 1;
        }
    return 0;
}

static int check(int32_t instruction_set, int32_t dtype, int64_t dim, int kind) {
    const int64_t num_listed = kind & LISTED ? ROWS / 2 : ROWS;
    int64_t begin[ROWS], end[ROWS], target[ROWS], entries = 0;
    for (int64_t listed = 0; listed < num_listed; listed++) {
        begin[listed] = entries;
        /* Some products have a row that is summed in segments. */
        const int is_long = listed == 3 && (dim + kind) % 17 == 0;
        end[listed] = entries += is_long ? 2500 : random_below(3) ? random_below(12) : 0;
        target[listed] = 2 * listed + 1;
    }
    const int32_t sums = sums_of(dtype);
    const int64_t dense_stride = dim + random_below(2), out_stride = dim + random_below(2);
    const size_t column_size = kind & WIDE ? 8 : 4;
    char *columns = malloc((size_t)entries * column_size);
    for (int64_t entry = 0; entry < entries; entry++) {
        const int64_t column = random_below(COLUMNS);
        memcpy(columns + (size_t)entry * column_size, &column, column_size);
    }
    /* The last row has no padding behind it. */
    const int64_t out_length = (ROWS - 1) * out_stride + dim;
    void *values = kind & WEIGHTED ? random_array(entries, sums) : NULL;
    void *row_scale = kind & ROW_SCALED ? random_array(ROWS, sums) : NULL;
    void *column_scale = kind & COLUMN_SCALED ? random_array(COLUMNS, sums) : NULL;
    /* Of every other width the first run has one factor, and the second one none. */
    void *column_runs = kind & COLUMN_SCALED && dim % 2 ? random_array(RUNS, sums) : NULL;
    if (column_runs) {
        const size_t size = size_of(sums);
        for (int64_t column = 0; column < RUN; column++)
            memcpy((char *)column_scale + (size_t)column * size, column_runs, size);
        if (sums == GNNLOOM_FLOAT64)
            ((double *)column_runs)[1] = NAN;
        else
            ((float *)column_runs)[1] = NAN;
    }
    const int32_t out_dtype = kind & WIDE_OUT ? sums : dtype;
    void *dense = random_array((COLUMNS - 1) * dense_stride + dim, dtype), *out = random_array(out_length, out_dtype);
    void *before = malloc((size_t)out_length * size_of(out_dtype));
    memcpy(before, out, (size_t)out_length * size_of(out_dtype));
    const struct gnnloom_product product = {begin,
                                            end,
                                            kind & LISTED ? target : NULL,
                                            columns,
                                            values,
                                            entries,
                                            row_scale,
                                            column_scale,
                                            column_runs,
                                            dense,
                                            dense_stride,
                                            out,
                                            out_stride,
                                            dim,
                                            dtype,
                                            (kind & WIDE) != 0,
                                            (kind & ACCUMULATED) != 0,
                                            (kind & STREAMED) != 0,
                                            (kind & WIDE_OUT) != 0};
    const int64_t bounds[] = {0, 1, num_listed / 2, num_listed};
    gnnloom_spmm(&product, bounds, 3, instruction_set, NULL, 1);
    const int wrong = differs(&product, num_listed, before);
    void *arrays[] = {columns, values, row_scale, column_scale, column_runs, dense, out, before};
    for (size_t at = 0; at < sizeof arrays / sizeof *arrays; at++)
        free(arrays[at]);
    return wrong;
}

int main(void) {
    int checks = 0, failures = 0;
    for (int32_t set = gnnloom_best_instruction_set(); set <= 2; set++)
        for (int32_t dtype = GNNLOOM_FLOAT32; dtype <= GNNLOOM_BFLOAT16; dtype++)
            for (int64_t dim = 1; dim <= MOST_WIDTH; dim += dim < 140 ? 1 : 9)
                for (int kind = 0; kind < CASES; kind++) {
                    /* The kernel takes weights or factors of columns. */
                    if ((kind & WEIGHTED && kind & COLUMN_SCALED) || (kind % 5 && dim > 70) ||
                        (kind & WIDE_OUT && dtype != GNNLOOM_BFLOAT16))
                        continue;
                    checks++;
                    if (check(set, dtype, dim, kind)) {
                        failures++;
                        printf("instruction set %d, dtype %d, width %d, case %d: wrong\n", (int)set, (int)dtype,
                               (int)dim, kind);
                    }
                }
    printf("%d products, %d wrong\n", checks, failures);
    return failures || checks == 0;
}
