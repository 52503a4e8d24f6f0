/* Included once for each instruction set and type, without a guard: the kernel for each block size, and the loops over
 * rows, columns and entries. Defines TYPE(attend) and TYPE(heads). */

#if SUM_BYTES == 8
#define INTEGER int64_t
#define HEADS_HERE 1
#else
#define INTEGER int32_t
#define HEADS_HERE MOST_HEADS
#endif

/* Entries of a row or column that are computed at a time. Their numbers are (entries, lanes): a lane for each head, and
 * up to the next power of two some that nobody reads. Behind the last entry there is room for a block. */
typedef struct {
    int64_t first;
    int64_t count;
    int64_t heads;
    int64_t lanes;
    int64_t id[MOST_ENTRIES];
    SUM score[MOST_NUMBERS] __attribute__((aligned(64)));
    SUM weight[MOST_NUMBERS] __attribute__((aligned(64)));
    SUM dot[MOST_NUMBERS] __attribute__((aligned(64)));
    SUM maximum[MOST_NUMBERS] __attribute__((aligned(64)));
    SUM factor[MOST_NUMBERS] __attribute__((aligned(64)));
    SUM along[MOST_NUMBERS] __attribute__((aligned(64)));
} TYPE(entries);

typedef struct {
    void (*sum)(const struct gnnloom_attention *given, const TYPE(entries) * entries, int64_t first, int lane,
                int64_t width, SUM *sums, int64_t pitch);
    void (*gradients)(const struct gnnloom_attention *given, TYPE(entries) * entries, int64_t first, int lane,
                      int64_t width, const SUM *values, SUM *sums, int64_t pitch, int adds);
} TYPE(panel_kernels);

typedef struct {
    int64_t columns;
    const TYPE(panel_kernels) (*panels)[4];
    void (*spread)(const STORED *row, int64_t heads, int64_t dim, SUM *to, int apart);
    void (*resume)(const SUM *row, const SUM *factor, int64_t heads, int64_t dim, SUM *to);
    void (*finish)(const SUM *sums, const SUM *divisor, int64_t heads, int64_t dim, void *row, int wide);
    void (*dots)(const struct gnnloom_heads *given, const void *second, int64_t start, int64_t stop, SUM *to);
    void (*scores)(const struct gnnloom_attention *given, TYPE(entries) * entries, const STORED *matrix,
                   const SUM *fixed, const SUM *vector, const SUM *others);
    void (*slopes)(const struct gnnloom_attention *given, const TYPE(entries) * entries, const STORED *matrix,
                   const SUM *fixed, SUM *sums);
} TYPE(block_kernels);

#define BLOCK_BYTES SUM_BYTES
#define MOST_BLOCKS 3
#include "attention_kernel.h"

#define BLOCK_BYTES 16
#define MOST_BLOCKS 2
#include "attention_kernel.h"

#define BLOCK_BYTES 32
#define MOST_BLOCKS 2
#include "attention_kernel.h"

#define BLOCK_BYTES 64
#define MOST_BLOCKS 4
#include "attention_kernel.h"

#define NAME(name) JOIN(JOIN(attention_, TYPE(name)), 64)
#define FUNCTIONS(bytes) JOIN(JOIN(attention_, TYPE(functions)), bytes)
#define COLUMNS (64 / SUM_BYTES)
#define PARTS (64 / (WIDEST < 64 ? WIDEST : 64))

/* The largest blocks that a head has room for. */
INLINE const TYPE(block_kernels) * TYPE(kernels_for)(int64_t dim) {
    if (dim * SUM_BYTES >= 64)
        return &FUNCTIONS(64);
    if (dim * SUM_BYTES >= 32)
        return &FUNCTIONS(32);
    return dim * SUM_BYTES >= 16 ? &FUNCTIONS(16) : &FUNCTIONS(SUM_BYTES);
}

/* exp of numbers up to 0: 2^k exp(r) for the nearest integer k of x / ln 2, with an error of about a unit in the last
 * place. What would not be a normal number is 0, and NaN stays NaN. */
INLINE NAME(vector) TYPE(exp)(NAME(vector) x) {
#if SUM_BYTES == 8
    static const SUM series[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
                                 1.0 / 362880.0,     1.0 / 40320.0,     1.0 / 5040.0,     1.0 / 720.0,
                                 1.0 / 120.0,        1.0 / 24.0,        1.0 / 6.0,        0.5};
    const SUM shift = 6755399441055744.0, high = 6.93145751953125e-1, low = 1.42860682030941723212e-6;
    const SUM least = -707.0, per_log2 = 1.4426950408889634074;
    const int digits = 52;
#else
    static const SUM series[] = {0x1.a15318p-13f, 0x1.6d44b6p-10f, 0x1.1110c6p-7f,
                                 0x1.5554e8p-5f,  0x1.555556p-3f,  0.5f};
    const SUM shift = 12582912.0f, high = 0.693359375f, low = -2.12194440e-4f;
    const SUM least = -86.5f, per_log2 = 1.44269504f;
    const int digits = 23;
#endif
    const NAME(vector) shifted = x * per_log2 + shift, whole = shifted - shift;
    const NAME(vector) rest = (x - whole * high) - whole * low;
    NAME(vector) sum = rest * series[0] + series[1];
    EACH (at, (int)(sizeof series / sizeof *series) - 2)
        sum = sum * rest + series[at + 2];
    sum = (sum * (rest * rest) + rest) + 1;
    const NAME(integers) bits = (NAME(integers))sum + ((NAME(integers))shifted << digits);
    return (NAME(vector))(bits & ~(NAME(integers))(x < least));
}

APART SUM TYPE(exp_of)(SUM x) {
    return TYPE(exp)((NAME(vector)){0} + x)[0];
}

/* The numbers of the heads of one row, one for each lane, over and over to the end of a block. */
INLINE NAME(block) TYPE(tiled)(const SUM *numbers, int64_t heads, int64_t lanes) {
    SUM tiled[COLUMNS];
    for (int64_t at = 0; at < COLUMNS; at++)
        tiled[at] = (at & (lanes - 1)) < heads ? numbers[at & (lanes - 1)] : 0;
    return NAME(load_sums)(tiled);
}

/* Blocks of the entries' numbers. */
INLINE int64_t TYPE(num_blocks)(const TYPE(entries) * entries) {
    return (entries->count * entries->lanes + COLUMNS - 1) / COLUMNS;
}

/* Numbers of a head in blocks. */
INLINE int64_t TYPE(pitch)(const struct gnnloom_attention *given, const TYPE(block_kernels) * kernels) {
    return (given->dim + kernels->columns - 1) / kernels->columns * kernels->columns;
}

/* Whether sums over so many entries are formed in segments. Those in float64 have digits to spare. */
INLINE int TYPE(is_long)(int64_t count) {
    return SUM_BYTES < 8 && count > ATTENTION_SEGMENT;
}

/* Add the sums of a segment to those of a whole row or column, which these are if it begins; and clear them. */
APART void TYPE(carry)(double *whole, SUM *sums, int64_t length, int begins) {
#if SUM_BYTES < 8
    add_segment(whole, sums, length, begins);
#else
    (void)whole, (void)begins;
#endif
    memset(sums, 0, (size_t)length * sizeof(SUM));
}

/* Add the sums of the last segment, and round. */
APART void TYPE(settle)(double *whole, SUM *sums, int64_t length) {
    TYPE(carry)(whole, sums, length, 0);
    for (int64_t at = 0; at < length; at++)
        sums[at] = (SUM)whole[at];
}

/* Copy some numbers of an entry to its lanes, of which there are 1, 2, 4 or 8. */
INLINE void TYPE(copy)(SUM *to, const SUM *from, int64_t heads, int64_t lanes) {
    if (heads == lanes)
        memcpy(to, from, (size_t)lanes * sizeof(SUM));
    else
        for (int64_t lane = 0; lane < lanes; lane++)
            to[lane] = lane < heads ? from[lane] : 0;
}

/* Repeat the last entry to the end of the last block. */
INLINE void TYPE(repeat)(const TYPE(entries) * entries, SUM *numbers) {
    const int64_t lanes = entries->lanes, length = entries->count * lanes;
    for (int64_t at = length; at < TYPE(num_blocks)(entries) * COLUMNS; at++)
        numbers[at] = numbers[at - lanes];
}

/* Clear what is behind the last entry. */
INLINE void TYPE(clear)(const TYPE(entries) * entries, SUM *numbers) {
    for (int64_t at = entries->count * entries->lanes; at < TYPE(num_blocks)(entries) * COLUMNS; at++)
        numbers[at] = 0;
}

/* The ids of some entries. Fetches what later entries have in a matrix of `pitch` numbers for each id, if there is one.
 */
INLINE void TYPE(read)(const struct gnnloom_attention *given, TYPE(entries) * entries, int64_t first, int64_t count,
                       const SUM *matrix, int64_t pitch) {
    const int64_t last = matrix ? given->num_entries - MOST_ENTRIES : 0;
    entries->first = first;
    entries->count = count;
    for (int64_t k = 0; k < count; k++) {
        entries->id[k] = id_of(given->ids, given->wide_ids, first + k);
        if (first + k < last) {
            const SUM *const row = matrix + id_of(given->ids, given->wide_ids, first + k + MOST_ENTRIES) * pitch;
            __builtin_prefetch(row);
            if (pitch * SUM_BYTES > CACHE_LINE)
                __builtin_prefetch(row + CACHE_LINE / SUM_BYTES);
        }
    }
}

/* The scores of the entries' columns. */
INLINE void TYPE(sources)(const struct gnnloom_attention *given, TYPE(entries) * entries, int64_t head, int64_t heads,
                          int64_t lanes) {
    for (int64_t k = 0; k < entries->count; k++)
        TYPE(copy)(entries->score + k * lanes, (const SUM *)given->source + entries->id[k] * given->heads + head, heads,
                   lanes);
}

/* What the entries' rows have: scores, maxima, factors, and sums along the features. */
INLINE void TYPE(targets)(const struct gnnloom_attention *given, TYPE(entries) * entries, const SUM *of_target,
                          int64_t head, int64_t heads, int64_t lanes) {
    for (int64_t k = 0; k < entries->count; k++) {
        const SUM *const row = (const SUM *)given->target + entries->id[k] * 4 * given->heads + head;
        TYPE(copy)(entries->score + k * lanes, row, heads, lanes);
        TYPE(copy)(entries->maximum + k * lanes, row + given->heads, heads, lanes);
        TYPE(copy)(entries->factor + k * lanes, row + 2 * given->heads, heads, lanes);
        TYPE(copy)(entries->along + k * lanes, row + 3 * given->heads, heads, lanes);
        __builtin_prefetch(of_target + entries->id[k] * given->heads, 1);
    }
}

/* Add the gradients of the entries' scores to those of their rows. */
INLINE void TYPE(scatter)(const struct gnnloom_attention *given, const TYPE(entries) * entries, SUM *of_target,
                          int64_t heads, int64_t lanes) {
    for (int64_t k = 0; k < entries->count; k++) {
        SUM *const to = of_target + entries->id[k] * given->heads;
        const SUM *const added = entries->dot + k * lanes;
        for (int64_t lane = 0; lane < heads; lane++)
            to[lane] += added[lane];
    }
}

/* A function of heads and lanes that is compiled for numbers of heads that have no idle lanes. */
#define BY_LANES(function, ...)                                          \
    switch (entries->heads == entries->lanes ? entries->lanes : 0) {     \
        case 1:                                                          \
            TYPE(function)(__VA_ARGS__, 1, 1);                           \
            break;                                                       \
        case 2:                                                          \
            TYPE(function)(__VA_ARGS__, 2, 2);                           \
            break;                                                       \
        case 4:                                                          \
            TYPE(function)(__VA_ARGS__, 4, 4);                           \
            break;                                                       \
        case 8:                                                          \
            TYPE(function)(__VA_ARGS__, 8, 8);                           \
            break;                                                       \
        default:                                                         \
            TYPE(function)(__VA_ARGS__, entries->heads, entries->lanes); \
    }

/* The scores of some entries of a row after the LeakyReLU; the maximum of `highest` and all of them. */
VECTORIZED NAME(block) TYPE(scored)(const struct gnnloom_attention *given, TYPE(entries) * entries, int64_t head,
                                    NAME(block) target, NAME(block) highest) {
    BY_LANES(sources, given, entries, head)
    TYPE(repeat)(entries, entries->score);
    for (int64_t block = 0; block < TYPE(num_blocks)(entries); block++) {
        NAME(block) score = NAME(load_sums)(entries->score + block * COLUMNS);
        EACH (part, PARTS) {
            const NAME(vector) sum = score.part[part] + target.part[part];
            const NAME(vector) found = NAME(leaky)(sum, sum, (SUM)given->slope);
            const NAME(integers) above = (NAME(integers))(found > highest.part[part]);
            score.part[part] = found;
            highest.part[part] =
                (NAME(vector))((above & (NAME(integers))found) | (~above & (NAME(integers))highest.part[part]));
        }
        NAME(store_sums)(entries->score + block * COLUMNS, score);
    }
    return highest;
}

/* The weights of some entries of a row from their scores; adds them to the totals of a block's lanes. */
VECTORIZED NAME(block) TYPE(weighed)(TYPE(entries) * entries, NAME(block) maximum, NAME(block) total) {
    for (int64_t block = 0; block < TYPE(num_blocks)(entries); block++) {
        NAME(block) score = NAME(load_sums)(entries->score + block * COLUMNS);
        EACH (part, PARTS)
            score.part[part] = TYPE(exp)(score.part[part] - maximum.part[part]);
        NAME(store_sums)(entries->weight + block * COLUMNS, score);
    }
    TYPE(clear)(entries, entries->weight);
    for (int64_t block = 0; block < TYPE(num_blocks)(entries); block++) {
        const NAME(block) weight = NAME(load_sums)(entries->weight + block * COLUMNS);
        EACH (part, PARTS)
            total.part[part] += weight.part[part];
    }
    return total;
}

/* Fold a block to its lanes: by a maximum or a sum. */
INLINE void TYPE(fold_lanes)(NAME(block) block, int64_t lanes, SUM *found, const int adds) {
    SUM numbers[COLUMNS];
    NAME(store_sums)(numbers, block);
    for (int64_t half = COLUMNS / 2; half >= lanes; half /= 2)
        for (int64_t at = 0; at < half; at++) {
            const SUM other = numbers[at + half];
            numbers[at] = adds ? numbers[at] + other : numbers[at] < other ? other : numbers[at];
        }
    for (int64_t lane = 0; lane < lanes; lane++)
        found[lane] = numbers[lane];
}

/* Panels of some heads: as many heads and blocks at a time as there are registers for the sums. `values` is NULL for
 * the sums of a row, and otherwise a column's values. */
APART void TYPE(panels)(const struct gnnloom_attention *given, const TYPE(block_kernels) * kernels,
                        TYPE(entries) * entries, int64_t head, int64_t heads, const SUM *values, SUM *sums) {
    const int64_t columns = kernels->columns, blocks = (given->dim + columns - 1) / columns, pitch = blocks * columns;
    for (int64_t block = 0; block < blocks; block += 4) {
        const int64_t some = smaller(4, blocks - block);
        const int64_t first = block * columns, width = smaller((block + some) * columns, given->dim) - first;
        for (int64_t lane = 0; lane < heads;) {
            int binary = 3;
            while (binary && (1 << binary > smaller(HEADS_HERE, heads - lane) || some << binary > MOST_VECTORS))
                binary--;
            const TYPE(panel_kernels) *panel = &kernels->panels[binary][some - 1];
            const int64_t from = (head + lane) * given->dim + first, at = lane * pitch + first;
            if (values)
                panel->gradients(given, entries, from, (int)lane, width, values + at, sums + at, pitch, block > 0);
            else
                panel->sum(given, entries, from, (int)lane, width, sums + at, pitch);
            lane += (int64_t)1 << binary;
        }
    }
}

/* Up to 8 heads of one row. `sums` and `whole` have room for their blocks. */
VECTORIZED void TYPE(attend_row)(const struct gnnloom_attention *given, const TYPE(block_kernels) * kernels,
                                 int64_t row, int64_t head, int64_t heads, TYPE(entries) * entries, SUM *sums,
                                 double *whole) {
    const int64_t begin = given->offsets[row], end = given->offsets[row + 1], at = row * given->heads + head;
    const int64_t lanes = entries->lanes, length = heads * TYPE(pitch)(given, kernels);
    const int is_long = TYPE(is_long)(end - begin);
    SUM *const maximum = (SUM *)given->maximum + at, *const total = (SUM *)given->total + at;
    SUM *const weighted = (SUM *)given->weighted + at * given->dim;
    const SUM *const scores = (const SUM *)given->source + head;
    SUM highest[8], sum[8], factor[8];
    double whole_sum[8];
    int64_t segment = begin;
    if (begin == end && !given->begins && !given->output)
        return;
    for (int64_t each = 0; each < lanes; each++)
        highest[each] = given->begins || each >= heads ? -(SUM)INFINITY : maximum[each];
    const NAME(block) target = TYPE(tiled)((const SUM *)given->target + at, heads, lanes);
    NAME(block) most = TYPE(tiled)(highest, lanes, lanes), totals = {{{0}}};
    for (int64_t entry = begin; entry < end; entry += MOST_ENTRIES) {
        TYPE(read)(given, entries, entry, smaller(MOST_ENTRIES, end - entry), scores, given->heads);
        most = TYPE(scored)(given, entries, head, target, most);
    }
    TYPE(fold_lanes)(most, lanes, highest, 0);
    /* Sums of earlier entries are scaled down to the new maximum. */
    for (int64_t each = 0; each < heads; each++) {
        factor[each] = 1;
        if (!given->begins && maximum[each] != highest[each])
            factor[each] = TYPE(exp_of)(maximum[each] - highest[each]);
    }
    if (given->begins)
        memset(sums, 0, (size_t)length * sizeof(SUM));
    else
        kernels->resume(weighted, factor, heads, given->dim, sums);
    memset(sum, 0, sizeof sum);
    if (is_long) {
        TYPE(carry)(whole, sums, length, 1);
        TYPE(carry)(whole_sum, sum, lanes, 1);
    }
    const NAME(block) tiled = TYPE(tiled)(highest, lanes, lanes);
    for (int64_t entry = begin; entry < end; entry += MOST_ENTRIES) {
        if (is_long && entry - segment >= ATTENTION_SEGMENT) {
            TYPE(carry)(whole, sums, length, 0);
            TYPE(fold_lanes)(totals, lanes, sum, 1);
            TYPE(carry)(whole_sum, sum, lanes, 0);
            totals = (NAME(block)){{{0}}};
            segment = entry;
        }
        /* Of a row with few entries, the scores are still there. */
        if (end - begin > MOST_ENTRIES) {
            TYPE(read)(given, entries, entry, smaller(MOST_ENTRIES, end - entry), scores, given->heads);
            TYPE(scored)(given, entries, head, target, most);
        }
        totals = TYPE(weighed)(entries, tiled, totals);
        TYPE(panels)(given, kernels, entries, head, heads, NULL, sums);
    }
    TYPE(fold_lanes)(totals, lanes, sum, 1);
    if (is_long) {
        TYPE(settle)(whole, sums, length);
        TYPE(settle)(whole_sum, sum, lanes);
    }
    for (int64_t each = 0; each < heads; each++) {
        total[each] = given->begins ? sum[each] : total[each] * factor[each] + sum[each];
        maximum[each] = highest[each];
        /* The entry with the largest score adds 1, so only the total of a row without entries is below 1. */
        factor[each] = total[each] < 1 ? 1 : total[each];
    }
    if (given->output)
        kernels->finish(sums, factor, heads, given->dim, (STORED *)given->output + at * given->dim, 0);
    else
        kernels->finish(sums, NULL, heads, given->dim, weighted, 1);
}

/* Weights of the entries of a column, which are final. */
VECTORIZED void TYPE(weights)(const struct gnnloom_attention *given, TYPE(entries) * entries, const SUM *of_target,
                              int64_t head, NAME(block) source) {
    BY_LANES(targets, given, entries, of_target, head)
    TYPE(repeat)(entries, entries->score);
    TYPE(repeat)(entries, entries->maximum);
    for (int64_t block = 0; block < TYPE(num_blocks)(entries); block++) {
        NAME(block) score = NAME(load_sums)(entries->score + block * COLUMNS), weight;
        const NAME(block) maximum = NAME(load_sums)(entries->maximum + block * COLUMNS);
        const NAME(block) factor = NAME(load_sums)(entries->factor + block * COLUMNS);
        EACH (part, PARTS) {
            const NAME(vector) sum = source.part[part] + score.part[part];
            score.part[part] = sum;
            weight.part[part] =
                TYPE(exp)(NAME(leaky)(sum, sum, (SUM)given->slope) - maximum.part[part]) * factor.part[part];
        }
        NAME(store_sums)(entries->score + block * COLUMNS, score);
        NAME(store_sums)(entries->weight + block * COLUMNS, weight);
    }
}

/* Gradients of the scores s_j + t_i of the entries of a column, in place of the scalar products; adds them to the sums
 * of a block's lanes. The derivative of a softmax: weight times (gradient of the weight - `along`). */
VECTORIZED NAME(block) TYPE(entry_gradients)(const struct gnnloom_attention *given, TYPE(entries) * entries,
                                             NAME(block) total) {
    for (int64_t block = 0; block < TYPE(num_blocks)(entries); block++) {
        const NAME(block) score = NAME(load_sums)(entries->score + block * COLUMNS);
        const NAME(block) weight = NAME(load_sums)(entries->weight + block * COLUMNS);
        const NAME(block) along = NAME(load_sums)(entries->along + block * COLUMNS);
        NAME(block) dot = NAME(load_sums)(entries->dot + block * COLUMNS);
        EACH (part, PARTS)
            dot.part[part] = NAME(leaky)(weight.part[part] * (dot.part[part] - along.part[part]), score.part[part],
                                         (SUM)given->slope);
        NAME(store_sums)(entries->dot + block * COLUMNS, dot);
    }
    TYPE(clear)(entries, entries->dot);
    for (int64_t block = 0; block < TYPE(num_blocks)(entries); block++) {
        const NAME(block) found = NAME(load_sums)(entries->dot + block * COLUMNS);
        EACH (part, PARTS)
            total.part[part] += found.part[part];
    }
    return total;
}

/* Up to 8 heads of one column. `sums`, `values` and `whole` have room for their blocks. */
VECTORIZED void TYPE(column)(const struct gnnloom_attention *given, const TYPE(block_kernels) * kernels, int64_t column,
                             int64_t head, int64_t heads, TYPE(entries) * entries, SUM *sums, SUM *values,
                             double *whole, SUM *of_target) {
    const int64_t begin = given->offsets[column], end = given->offsets[column + 1], at = column * given->heads + head;
    const int64_t lanes = entries->lanes, length = heads * TYPE(pitch)(given, kernels);
    const int is_long = TYPE(is_long)(end - begin);
    const NAME(block) source = TYPE(tiled)((const SUM *)given->source + at, heads, lanes);
    const SUM *const targets = (const SUM *)given->target + head;
    NAME(block) totals = {{{0}}};
    SUM sum[8];
    double whole_sum[8] = {0};
    int64_t segment = begin;
    memset(sums, 0, (size_t)length * sizeof(SUM));
    if (is_long)
        TYPE(carry)(whole, sums, length, 1);
    if (begin < end)
        kernels->spread((const STORED *)given->values + at * given->dim, heads, given->dim, values, 1);
    for (int64_t entry = begin; entry < end; entry += MOST_ENTRIES) {
        if (is_long && entry - segment >= ATTENTION_SEGMENT) {
            TYPE(carry)(whole, sums, length, 0);
            TYPE(fold_lanes)(totals, lanes, sum, 1);
            TYPE(carry)(whole_sum, sum, lanes, 0);
            totals = (NAME(block)){{{0}}};
            segment = entry;
        }
        TYPE(read)(given, entries, entry, smaller(MOST_ENTRIES, end - entry), targets, 4 * given->heads);
        TYPE(weights)(given, entries, of_target, head, source);
        TYPE(panels)(given, kernels, entries, head, heads, values, sums);
        totals = TYPE(entry_gradients)(given, entries, totals);
        BY_LANES(scatter, given, entries, of_target + head)
    }
    TYPE(fold_lanes)(totals, lanes, sum, 1);
    if (is_long) {
        TYPE(settle)(whole, sums, length);
        TYPE(settle)(whole_sum, sum, lanes);
    }
    for (int64_t each = 0; each < heads; each++)
        ((SUM *)given->of_source)[at + each] = sum[each];
    kernels->finish(sums, NULL, heads, given->dim, (STORED *)given->of_values + at * given->dim, 0);
}

INLINE int64_t TYPE(lanes_for)(int64_t heads) {
    return heads <= 2 ? heads : heads <= 4 ? 4 : 8;
}

#include "attention_v2.h"

/* Move what was added to the gradients of the hubs' scores to their sums. */
APART void TYPE(add_hubs)(const struct gnnloom_attention *given, SUM *of_target, double *sums) {
    for (int64_t hub = 0; hub < given->num_hubs; hub++, sums += given->heads) {
        SUM *const added = of_target + given->hubs[hub] * given->heads;
        for (int64_t head = 0; head < given->heads; head++) {
            sums[head] += added[head];
            added[head] = 0;
        }
    }
}

static void TYPE(attend)(const struct gnnloom_attention *given, int64_t number, int64_t start, int64_t stop,
                         void *scratch) {
    const TYPE(block_kernels) *const kernels = TYPE(kernels_for)(given->dim);
    TYPE(entries) entries[1];
    if (given->step >= GNNLOOM_ATTEND_V2) {
        TYPE(attend_v2)(given, kernels, number, start, stop, entries, scratch);
        return;
    }
    const int64_t some = 8 * (given->dim + kernels->columns);
    double *const whole = scratch;
    SUM *const sums = (SUM *)(whole + some), *const values = sums + some;
    const int64_t range = given->first_range + number;
    SUM *const of_target = (SUM *)given->of_target + range * given->num_rows * given->heads;
    double *const of_hubs = given->of_hubs + range * given->num_hubs * given->heads;
    const int has_hubs = given->step == GNNLOOM_COLUMNS && given->num_hubs > 0;
    if (given->step == GNNLOOM_COLUMNS)
        memset(of_target, 0, (size_t)(given->num_rows * given->heads) * sizeof(SUM));
    if (has_hubs)
        memset(of_hubs, 0, (size_t)(given->num_hubs * given->heads) * sizeof(double));
    for (int64_t row = start; row < stop; row++) {
        for (int64_t head = 0; head < given->heads; head += 8) {
            const int64_t heads = smaller(8, given->heads - head);
            entries->heads = heads;
            entries->lanes = TYPE(lanes_for)(heads);
            if (given->step == GNNLOOM_COLUMNS)
                TYPE(column)(given, kernels, row, head, heads, entries, sums, values, whole, of_target);
            else
                TYPE(attend_row)(given, kernels, row, head, heads, entries, sums, whole);
        }
        if (has_hubs && (row + 1 == stop || (row + 1 - start) % given->hub_columns == 0))
            TYPE(add_hubs)(given, of_target, of_hubs);
    }
}

/* Add the gradients that scores give to values, and form those of the vectors, which are sums over the chunk's rows. */
VECTORIZED void TYPE(spread_scores)(const struct gnnloom_heads *given, int64_t chunk) {
    const int64_t dim = given->dim, heads = given->heads, width = heads * dim;
    const int64_t start = chunk * given->chunk, stop = smaller(start + given->chunk, given->num_rows);
    SUM *const partial = (SUM *)given->partial + chunk * 2 * width;
    memset(partial, 0, (size_t)(2 * width) * sizeof(SUM));
    for (int64_t at = start * heads, head = 0; at < stop * heads; at++, head = head + 1 < heads ? head + 1 : 0) {
        const STORED *restrict const row = (const STORED *)given->first + at * dim;
        STORED *restrict const out = (STORED *)given->gradient + at * dim;
        const SUM *restrict const second = (const SUM *)given->second + head * dim;
        SUM *restrict const one = partial + head * dim, *restrict const two = one + width;
        const SUM sum = ((const SUM *)given->sums)[at];
        if (given->other && at < given->num_others * heads) {
            const SUM *restrict const other = (const SUM *)given->other + head * dim;
            const SUM another = ((const SUM *)given->other_sums)[at];
            for (int64_t d = 0; d < dim; d++) {
                const SUM value = TYPE(widened)(row[d]);
                out[d] = TYPE(narrowed)((TYPE(widened)(out[d]) + sum * second[d]) + another * other[d]);
                one[d] += sum * value;
                two[d] += another * value;
            }
        } else
            for (int64_t d = 0; d < dim; d++) {
                out[d] = TYPE(narrowed)(TYPE(widened)(out[d]) + sum * second[d]);
                one[d] += sum * TYPE(widened)(row[d]);
            }
    }
}

static void TYPE(heads)(const struct gnnloom_heads *given, int64_t start, int64_t stop) {
    const TYPE(block_kernels) *const kernels = TYPE(kernels_for)(given->dim);
    for (int64_t chunk = start; chunk < stop; chunk++) {
        const int64_t first = chunk * given->chunk * given->heads, last = first + given->chunk * given->heads;
        const int64_t end = smaller(last, given->num_rows * given->heads);
        if (given->step == GNNLOOM_SPREAD) {
            TYPE(spread_scores)(given, chunk);
            continue;
        }
        kernels->dots(given, given->second, first, end, given->sums);
        if (given->other)
            kernels->dots(given, given->other, first, smaller(end, given->num_others * given->heads),
                          given->other_sums);
    }
}

#undef BY_LANES
#undef FUNCTIONS
#undef NAME
#undef COLUMNS
#undef PARTS
#undef INTEGER
#undef HEADS_HERE
