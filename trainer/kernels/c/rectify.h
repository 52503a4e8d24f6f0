/* A pass over rows of features, as Python describes it; c/rows.py has the same structure. */
#ifndef GNNLOOM_RECTIFY_H
#define GNNLOOM_RECTIFY_H

#include "spmm.h"

/* Features of which one word holds the bits, and which are computed together. */
#define GNNLOOM_LANES 32

enum gnnloom_step {
    GNNLOOM_RECTIFY = 0, /* relu(source + bias), dropped if there are vertices, and the bits of what is not zero */
    GNNLOOM_SELECT = 1,  /* the source times the scale where the bit is set, else 0 */
    GNNLOOM_DROP = 2,    /* the source times the scale where it is kept, else 0 */
};

/* Matrices are contiguous. Their types, and those of the sums, are those of a product. */
struct gnnloom_rows {
    const void *source; /* (rows, dim) */
    void *result;       /* (rows, dim), may be the source */
    const void *bias;   /* (dim) of the type of the sums; for RECTIFY */
    uint32_t *passed;   /* (rows, dim / 32 rounded up): written by RECTIFY, read by SELECT */
    /* (rows) int64 ids that decide, with the key, which features are kept; NULL to keep all. */
    const int64_t *vertex;
    int64_t dim;
    int64_t first_column; /* of the whole matrix, at which the rows begin */
    uint64_t key;
    double scale;       /* of the features that are kept; rounded to the type of the sums */
    uint32_t threshold; /* features whose hash is below are dropped */
    int32_t step;
    int32_t dtype;
};

void gnnloom_rows_portable(const struct gnnloom_rows *rows, int64_t start, int64_t stop);
#if GNNLOOM_X86
void gnnloom_rows_avx2(const struct gnnloom_rows *rows, int64_t start, int64_t stop);
void gnnloom_rows_avx512(const struct gnnloom_rows *rows, int64_t start, int64_t stop);
#endif

#endif
