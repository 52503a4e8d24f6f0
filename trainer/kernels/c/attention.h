/* Attention over the entries of a pattern, as Python describes it. library.py has the same structures.
 *
 * For row i, column j and head, with scores s_j and t_i: e = LeakyReLU(s_j + t_i), weight = exp(e - maximum_i). Entries
 * are int64 or int32 ids; matrices are contiguous. STORED is the type of a product's dense matrix, SUM that of its
 * sums.
 */
#ifndef GNNLOOM_ATTENTION_H
#define GNNLOOM_ATTENTION_H

#include "spmm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum gnnloom_attention_step {
    GNNLOOM_ATTEND = 0,  /* row by row: weights of the entries, and the weighted sums of the columns' values */
    GNNLOOM_COLUMNS = 1, /* column by column: gradients of the values and of all scores */
    /* The same for the scores of GATv2, a . LeakyReLU(z_j + t_i) with values z_j and t_i. */
    GNNLOOM_ATTEND_V2 = 2,
    GNNLOOM_COLUMNS_V2 = 3, /* column by column: gradients of the values z, and their part of that of a */
    GNNLOOM_ROWS_V2 = 4,    /* row by row: gradients of the values t, and their part of that of a */
};

struct gnnloom_attention {
    /* (rows + 1) int64, and the columns of the entries; in COLUMNS (columns + 1), and their rows. */
    const int64_t *offsets;
    const void *ids;
    const void *values; /* (columns, heads, dim) STORED */
    const void *source; /* (columns, heads) SUM; of GATv2 (heads, dim), the vectors a */
    /* (rows, heads) SUM; in COLUMNS (rows, 4, heads): score, maximum, 1 / total, and the sum over the features of the
     * output times its gradient. Of GATv2 (rows, heads, dim) STORED, the values t. */
    const void *target;
    const void *row_numbers; /* (rows, 3, heads) SUM, of gradients of GATv2: the last three of these four */
    void *maximum;           /* (rows, heads) SUM, of the entries so far */
    void *total;             /* (rows, heads) SUM of the weights so far */
    void *weighted;          /* (rows, heads, dim) SUM, of weight times value so far */
    /* (rows, heads, dim) STORED, weighted / total, if these entries are the last ones; else NULL. May be `weighted`. */
    void *output;
    const void *gradient; /* (rows, heads, dim) STORED, of the output */
    void *of_values;      /* (columns, heads, dim) STORED, overwritten */
    void
        *of_source; /* (columns, heads) SUM, overwritten; of GATv2 (ranges, heads, dim) float64, sums over each range */
    /* (ranges, rows, heads) SUM, the sums over each range of columns, but for hubs; of GATv2 (rows, heads, dim) STORED,
     * overwritten. */
    void *of_target;
    /* Of COLUMNS: rows with very many entries, and (ranges, hubs, heads) float64, the sums over each range of columns
     * of these rows: after every `hub_columns` columns, what was added in SUM is added to them. */
    const int64_t *hubs;
    double *of_hubs;
    int64_t num_hubs;
    int64_t hub_columns;
    int64_t first_range; /* number of the range that is given first */
    int64_t num_entries;
    int64_t num_rows;
    int64_t heads;
    int64_t dim;
    double slope;
    int32_t step;
    int32_t dtype;
    int32_t wide_ids; /* ids are int64 */
    int32_t begins;   /* nothing is read of sums so far: these entries are the first ones */
};

/* Passes over the heads of rows. */
enum gnnloom_heads_step {
    GNNLOOM_DOTS = 0,   /* first sums = first . second, and other sums = first . other */
    GNNLOOM_SPREAD = 1, /* gradient += first sums * second + other sums * other; and the gradients of these vectors */
};

struct gnnloom_heads {
    const void *first;  /* (rows, heads, dim) STORED */
    const void *second; /* likewise, or (heads, dim) SUM if `vectors` */
    const void *other;  /* (heads, dim) SUM; NULL if there is none */
    void *sums;         /* (rows, heads) SUM: written by DOTS, read by SPREAD */
    void *other_sums;   /* (rows with other sums, heads) SUM */
    void *gradient;     /* (rows, heads, dim) STORED */
    void *partial;      /* (chunks, 2, heads, dim) SUM: for each chunk of rows, the sums of sums * first */
    int64_t num_rows;
    int64_t num_others; /* leading rows with other sums */
    int64_t heads;
    int64_t dim;
    int64_t chunk; /* rows of a chunk */
    int32_t step;
    int32_t dtype;
    int32_t vectors;
};

/* Rows or columns `start` to `stop`, a range of this number; 0 if there is no memory. Of passes over heads, chunks of
 * rows. */
int gnnloom_attend_portable(const struct gnnloom_attention *given, int64_t number, int64_t start, int64_t stop);
void gnnloom_heads_portable(const struct gnnloom_heads *given, int64_t start, int64_t stop);
#if GNNLOOM_X86
int gnnloom_attend_avx2(const struct gnnloom_attention *given, int64_t number, int64_t start, int64_t stop);
int gnnloom_attend_avx512(const struct gnnloom_attention *given, int64_t number, int64_t start, int64_t stop);
void gnnloom_heads_avx2(const struct gnnloom_heads *given, int64_t start, int64_t stop);
void gnnloom_heads_avx512(const struct gnnloom_heads *given, int64_t start, int64_t stop);
#endif

#endif
