/* A product of sparse rows with a dense matrix, as Python describes it. library.py has the same structure. */
#ifndef GNNLOOM_PRODUCT_H
#define GNNLOOM_PRODUCT_H

#include <stdint.h>

/* Raised with every change of the structure or of a meaning: a library of an older build is not used. */
#define GNNLOOM_ABI 8

enum gnnloom_dtype {
    GNNLOOM_FLOAT32 = 0,
    GNNLOOM_FLOAT64 = 1,
    GNNLOOM_BFLOAT16 = 2, /* of the dense matrices only: weights, factors and sums are float32 */
};

/* Columns of a run: 2 to the power of this. */
#define GNNLOOM_RUN_BITS 6

struct gnnloom_product {
    /* (number of listed rows) int64: each row's first entry, and the one after its last. */
    const int64_t *begin;
    const int64_t *end;
    /* Row of the output that each listed row is written to; NULL if it is its position in the list. */
    const int64_t *target;
    const void *columns; /* (entries) int32 or int64 */
    const void *values;  /* (entries) weights; NULL if all are ones */
    int64_t entries;
    const void *row_scale;    /* (rows of the output) factors of the sums; NULL for ones */
    const void *column_scale; /* (columns) factors of the dense rows, without weights only; NULL for ones */
    const void *column_runs;  /* (runs of columns) the factor that all columns of a run have, or NaN; NULL if unknown */
    const void *dense;        /* (columns, dim); strides count elements */
    int64_t dense_stride;
    void *out; /* (rows, dim) */
    int64_t out_stride;
    int64_t dim;
    int32_t dtype;
    int32_t wide_columns; /* columns are int64 */
    int32_t accumulate;   /* add to the output instead of overwriting it */
    int32_t stream;       /* write around the caches where alignment allows: the output is larger than they are */
    int32_t wide_out;     /* the output is float32 although the dense matrix is bfloat16 */
};

#endif
