/* Included once for each instruction set and type, without a guard: the kernel for each vector size and number of
 * blocks, and the choice between them. Defines TYPE(spmm). */

#if defined(BFLOAT16)
#define MOST_HERE MOST_PAIRS
#elif SUM_BYTES == 8
#define MOST_HERE MOST_DOUBLES
#else
#define MOST_HERE MOST_SUMS
#endif

/* The factor of a column. That of its run is most likely in the caches, which many columns' own factors do not fit. */
INLINE SUM TYPE(run_factor)(const struct gnnloom_product *product, int64_t column) {
    const SUM common = ((const SUM *)product->column_runs)[column >> GNNLOOM_RUN_BITS];
    return common == common ? common : ((const SUM *)product->column_scale)[column];
}

INLINE SUM TYPE(widened)(STORED stored) {
#ifdef BFLOAT16
    union {
        uint32_t bits;
        float value;
    } word = {(uint32_t)stored << 16};
    return word.value;
#else
    return stored;
#endif
}

INLINE STORED TYPE(narrowed)(SUM sum) {
#ifdef BFLOAT16
    union {
        float value;
        uint32_t bits;
    } word = {sum};
    if (sum != sum)
        return 0x7fc0;
    return (STORED)((word.bits + 0x7fff + ((word.bits >> 16) & 1)) >> 16);
#else
    return sum;
#endif
}

/* Scale a sum, and write it or add it to the output. */
INLINE void TYPE(write)(const struct gnnloom_product *product, int64_t target, int64_t at, SUM sum) {
    const int64_t to = target * product->out_stride + at;
    if (product->row_scale)
        sum *= ((const SUM *)product->row_scale)[target];
#ifdef BFLOAT16
    if (product->wide_out) {
        SUM *const wide = (SUM *)product->out + to;
        *wide = product->accumulate ? *wide + sum : sum;
        return;
    }
#endif
    STORED *const out = (STORED *)product->out + to;
    *out = TYPE(narrowed)(product->accumulate ? TYPE(widened)(*out) + sum : sum);
}

#if SUM_BYTES < 8
/* A row of more than SEGMENT entries: a kernel computes the sums of each segment, as if it were a row. */
APART void TYPE(long_row)(const struct gnnloom_product *product, int64_t listed, int64_t first, int64_t width,
                          panel_kernel *kernel) {
    const int64_t target = product->target ? product->target[listed] : listed, last = product->end[listed];
    double whole[MOST_HERE * WIDEST / sizeof(STORED)];
    SUM sums[MOST_HERE * WIDEST / sizeof(STORED)];
    int64_t begin = product->begin[listed], end;
    struct gnnloom_product segment = *product;
    segment.dense = (const STORED *)product->dense + first;
    segment.out = sums;
    segment.wide_out = 1;
    segment.accumulate = segment.stream = 0;
    segment.begin = &begin;
    segment.end = &end;
    segment.target = NULL;
    segment.row_scale = NULL;
    for (int begins = 1; begin < last; begin = end, begins = 0) {
        end = smaller(begin + SEGMENT, last);
        kernel(&segment, 0, 1, 0, width);
        add_segment(whole, sums, width, begins);
    }
    for (int64_t at = 0; at < width; at++)
        TYPE(write)(product, target, first + at, (SUM)whole[at]);
}
#endif

/* Rows of a few columns. A vector of one element is a register all the same, which saves the loop over the columns. */
#ifdef BFLOAT16
#define VECTOR_BYTES 4
#define MOST_BLOCKS 2
#include "spmm_kernel.h"
#endif

#define VECTOR_BYTES 8
#define MOST_BLOCKS 2
#include "spmm_kernel.h"

#define VECTOR_BYTES 16
#if WIDEST == VECTOR_BYTES
#define MOST_BLOCKS MOST_HERE
#else
#define MOST_BLOCKS 2
#endif
#include "spmm_kernel.h"

#if WIDEST >= 32
#define VECTOR_BYTES 32
#if WIDEST == VECTOR_BYTES
#define MOST_BLOCKS MOST_HERE
#else
#define MOST_BLOCKS 2
#endif
#include "spmm_kernel.h"
#endif

#if WIDEST >= 64
#define VECTOR_BYTES 64
#define MOST_BLOCKS MOST_HERE
#include "spmm_kernel.h"
#endif

INLINE SUM TYPE(term)(const struct gnnloom_product *product, int64_t entry, int64_t at) {
    const int64_t column = column_of(product, entry);
    const SUM value = TYPE(widened)(((const STORED *)product->dense)[column * product->dense_stride + at]);
    if (product->values)
        return ((const SUM *)product->values)[entry] * value;
    return product->column_scale ? ((const SUM *)product->column_scale)[column] * value : value;
}

/* A sum over some entries for one element of the output. Grouped like the vectors. */
INLINE SUM TYPE(sum)(const struct gnnloom_product *product, int64_t entry, int64_t end, int64_t at) {
    SUM total = 0;
    if (product->values)
        for (; entry + 2 <= end; entry += 2)
            total += TYPE(term)(product, entry, at) + TYPE(term)(product, entry + 1, at);
    else
        for (; entry + 4 <= end; entry += 4)
            total += (TYPE(term)(product, entry, at) + TYPE(term)(product, entry + 1, at)) +
                     (TYPE(term)(product, entry + 2, at) + TYPE(term)(product, entry + 3, at));
    for (; entry < end; entry++)
        total += TYPE(term)(product, entry, at);
    return total;
}

/* One element of the output: for matrices that are narrower than the smallest vector. */
INLINE SUM TYPE(element)(const struct gnnloom_product *product, int64_t listed, int64_t at) {
    const int64_t begin = product->begin[listed], end = product->end[listed];
    if (SUM_BYTES == 8 || end - begin <= SEGMENT)
        return TYPE(sum)(product, begin, end, at);
    double whole = 0;
    for (int64_t entry = begin; entry < end; entry += SEGMENT)
        whole += TYPE(sum)(product, entry, smaller(entry + SEGMENT, end), at);
    return (SUM)whole;
}

static void TYPE(narrow)(const struct gnnloom_product *product, int64_t start, int64_t stop) {
    for (int64_t listed = start; listed < stop; listed++) {
        const int64_t target = product->target ? product->target[listed] : listed;
        for (int64_t at = 0; at < product->dim; at++)
            TYPE(write)(product, target, at, TYPE(element)(product, listed, at));
    }
}

/* The widest vectors that the rows have room for. */
static void TYPE(spmm)(const struct gnnloom_product *product, int64_t start, int64_t stop) {
#if WIDEST >= 64
    if (product->dim * (int64_t)sizeof(STORED) >= 64) {
        JOIN(JOIN(TYPE(panels), 64), _)(product, start, stop);
        return;
    }
#endif
#if WIDEST >= 32
    if (product->dim * (int64_t)sizeof(STORED) >= 32) {
        JOIN(JOIN(TYPE(panels), 32), _)(product, start, stop);
        return;
    }
#endif
    if (product->dim * (int64_t)sizeof(STORED) >= 16)
        JOIN(JOIN(TYPE(panels), 16), _)(product, start, stop);
    else if (product->dim * (int64_t)sizeof(STORED) >= 8)
        JOIN(JOIN(TYPE(panels), 8), _)(product, start, stop);
#ifdef BFLOAT16
    else if (product->dim * (int64_t)sizeof(STORED) >= 4)
        JOIN(JOIN(TYPE(panels), 4), _)(product, start, stop);
#endif
    else
        TYPE(narrow)(product, start, stop);
}

#undef MOST_HERE
