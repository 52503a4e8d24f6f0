/* Included once for each instruction set, type and vector size, without a guard.
 *
 * VECTOR_BYTES   bytes of a vector
 * MOST_BLOCKS    blocks of columns whose sums are kept in registers at a time
 * STORED, SUM    types of an element in memory and in the registers
 *
 * A block is as many columns as one vector load brings. Its sums are one vector, or two for bfloat16: a 32-bit word
 * holds two elements, and the even and the odd ones are widened and summed apart, so that nothing is ever shuffled.
 *
 * Four entries are added in pairs (two, where they have weights), then to the total. The order of a sum depends on the
 * row alone, and products are not contracted to fused multiply-adds (-ffp-contract=off). So every instruction set and
 * number of threads gives the same bits. Long rows are summed in segments,
 * whose float32 sums are added in float64 (`long_row`).
 */
#define NAME(name) JOIN(JOIN(TYPE(name), VECTOR_BYTES), _)
#define LANES (VECTOR_BYTES / (int)sizeof(STORED))
#define PARTS ((int)(sizeof(SUM) / sizeof(STORED)))

typedef SUM NAME(vector) __attribute__((vector_size(VECTOR_BYTES)));
/* A vector in memory, aligned like its elements: rows of any width follow each other without padding. */
typedef SUM NAME(loose) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(STORED)), may_alias));

typedef struct {
    NAME(vector) part[PARTS];
} NAME(block);

#ifdef BFLOAT16
typedef uint32_t NAME(bits) __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t NAME(loose_bits) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(STORED)), may_alias));

/* The lanes of two vectors that a list chooses. */
#ifdef __clang__
#define CHOOSE(first, second, ...) __builtin_shufflevector(first, second, __VA_ARGS__)
#else
#define CHOOSE(first, second, ...) __builtin_shuffle(first, second, (NAME(bits)){__VA_ARGS__})
#endif

/* A block of a float32 output, whose columns follow each other, as even and odd columns. */
INLINE NAME(block) NAME(load_wide)(const SUM *from) {
    const NAME(vector) lower = *(const NAME(loose) *)from, upper = *(const NAME(loose) *)(from + LANES / 2);
    return (NAME(block)){
        {CHOOSE(lower, upper, JOIN(EVEN_, VECTOR_BYTES)), CHOOSE(lower, upper, JOIN(ODD_, VECTOR_BYTES))}};
}

INLINE void NAME(store_wide)(SUM *to, NAME(block) block) {
    *(NAME(loose) *)to = CHOOSE(block.part[0], block.part[1], JOIN(LOWER_, VECTOR_BYTES));
    *(NAME(loose) *)(to + LANES / 2) = CHOOSE(block.part[0], block.part[1], JOIN(UPPER_, VECTOR_BYTES));
}

/* Round to the nearest bfloat16, ties to even, in the upper half of each word. */
INLINE NAME(bits) NAME(rounded)(NAME(vector) value) {
    NAME(bits) bits = (NAME(bits))value, is_nan = (NAME(bits))(value != value);
    bits += 0x7fff + ((bits >> 16) & 1);
    return ((bits & ~is_nan) | (is_nan & 0x7fc00000)) & 0xffff0000;
}
#endif

INLINE NAME(block) NAME(load)(const STORED *from) {
    NAME(block) block;
#ifdef BFLOAT16
    NAME(bits) bits = *(const NAME(loose_bits) *)from;
    block.part[0] = (NAME(vector))(bits << 16);
    block.part[1] = (NAME(vector))(bits & 0xffff0000);
#else
    block.part[0] = *(const NAME(loose) *)from;
#endif
    return block;
}

INLINE void NAME(store)(STORED *to, NAME(block) block, int stream) {
#ifdef BFLOAT16
    NAME(bits) packed = NAME(rounded)(block.part[1]) | (NAME(rounded)(block.part[0]) >> 16);
#else
    NAME(vector) packed = block.part[0];
#endif
#if defined(STREAM) && VECTOR_BYTES == WIDEST
    if (stream) {
        STREAM(to, packed);
        return;
    }
#else
    (void)stream;
#endif
#ifdef BFLOAT16
    *(NAME(loose_bits) *)to = packed;
#else
    *(NAME(loose) *)to = packed;
#endif
}

/* What one entry adds to a block. */
INLINE NAME(block) NAME(term)(const STORED *from, SUM factor, const enum factors factors) {
    NAME(block) block = NAME(load)(from);
    if (factors != ONES)
        EACH (part, PARTS)
            block.part[part] *= factor;
    return block;
}

/* First column of a block within its panel. The last block ends where the panel does, and so may overlap the one before
 * it; both then hold the same sums. */
INLINE int64_t NAME(offset)(int block, const int blocks, int64_t width) {
    return block == blocks - 1 ? width - LANES : block * LANES;
}

/* Fetch the dense rows of entries that come later: their cache misses overlap with the sums of this one. */
INLINE void NAME(prefetch)(const struct gnnloom_product *product, const STORED *dense, int64_t entry, const int blocks,
                           const int group, const enum factors factors) {
    const int bytes = blocks * VECTOR_BYTES, ahead = ahead_of(bytes);
    if (entry + ahead + group > product->entries)
        return;
    EACH (k, group) {
        const int64_t column = column_of(product, entry + ahead + k);
        const char *row = (const char *)(dense + column * product->dense_stride);
        EACH (line, (bytes + CACHE_LINE - 1) / CACHE_LINE)
            __builtin_prefetch(row + line * CACHE_LINE);
        if (factors == COLUMN_RUNS)
            __builtin_prefetch((const SUM *)product->column_runs + (column >> GNNLOOM_RUN_BITS));
        else if (factors == COLUMN_SCALE)
            __builtin_prefetch((const SUM *)product->column_scale + column);
    }
}

/* Add a group of 1, 2 or 4 entries to the sums of a row. */
INLINE void NAME(add)(const struct gnnloom_product *product, const STORED *dense, int64_t entry, int64_t width,
                      const int blocks, const int group, const enum factors factors, NAME(block) *total) {
    const STORED *row[4];
    SUM factor[4];
    EACH (k, group) {
        const int64_t column = column_of(product, entry + k);
        row[k] = dense + column * product->dense_stride;
        factor[k] = factors == ONES          ? 1
                    : factors == WEIGHTS     ? ((const SUM *)product->values)[entry + k]
                    : factors == COLUMN_RUNS ? TYPE(run_factor)(product, column)
                                             : ((const SUM *)product->column_scale)[column];
    }
    NAME(prefetch)(product, dense, entry, blocks, group, factors);
    EACH (block, blocks) {
        NAME(block) term[4];
        EACH (k, group)
            term[k] = NAME(term)(row[k] + NAME(offset)(block, blocks, width), factor[k], factors);
        EACH (part, PARTS) {
            NAME(vector) sum = term[0].part[part];
            if (group >= 2)
                sum += term[1].part[part];
            if (group == 4)
                sum += term[2].part[part] + term[3].part[part];
            total[block].part[part] += sum;
        }
    }
}

/* Scale a finished row, and write it or add it: the output is touched once per row. */
INLINE void NAME(finish)(const struct gnnloom_product *product, int64_t target, int64_t first, int64_t width,
                         const int blocks, NAME(block) *total) {
    const int64_t at = target * product->out_stride + first;
    if (product->row_scale)
        EACH (block, blocks)
            EACH (part, PARTS)
                total[block].part[part] *= ((const SUM *)product->row_scale)[target];
    /* All blocks are read before one is written, since the last two may overlap. */
#ifdef BFLOAT16
    if (product->wide_out) {
        SUM *const out = (SUM *)product->out + at;
        if (product->accumulate)
            EACH (block, blocks) {
                NAME(block) before = NAME(load_wide)(out + NAME(offset)(block, blocks, width));
                EACH (part, PARTS)
                    total[block].part[part] = before.part[part] + total[block].part[part];
            }
        EACH (block, blocks)
            NAME(store_wide)(out + NAME(offset)(block, blocks, width), total[block]);
        return;
    }
#endif
    STORED *const out = (STORED *)product->out + at;
    if (product->accumulate)
        EACH (block, blocks) {
            NAME(block) before = NAME(load)(out + NAME(offset)(block, blocks, width));
            EACH (part, PARTS)
                total[block].part[part] = before.part[part] + total[block].part[part];
        }
    EACH (block, blocks)
        NAME(store)(out + NAME(offset)(block, blocks, width), total[block], product->stream);
}

/* Fetch an output row that comes later in the list: the processor foresees the next row, but not the next listed. */
INLINE void NAME(prefetch_output)(const struct gnnloom_product *product, int64_t listed, int64_t stop, int64_t first,
                                  const int blocks) {
    const int ahead = ahead_of(blocks * VECTOR_BYTES);
    if (!product->target || !product->accumulate || listed + ahead >= stop)
        return;
    const int64_t at = product->target[listed + ahead] * product->out_stride + first;
    const int size = product->wide_out ? (int)sizeof(SUM) : (int)sizeof(STORED);
    const char *row = (const char *)product->out + at * size;
    for (int byte = 0; byte < blocks * LANES * size; byte += CACHE_LINE)
        __builtin_prefetch(row + byte, 1);
}

/* Add a group of entries after the other to the sums of a row. */
INLINE void NAME(add_all)(const struct gnnloom_product *product, const STORED *dense, int64_t entry, int64_t end,
                          int64_t width, const int blocks, const enum factors factors, NAME(block) *total) {
    const int group = factors == WEIGHTS ? 2 : 4;
    EACH (block, blocks)
        total[block] = (NAME(block)){0};
    for (; entry + group <= end; entry += group)
        NAME(add)(product, dense, entry, width, blocks, group, factors, total);
    for (; entry < end; entry++)
        NAME(add)(product, dense, entry, width, blocks, 1, factors, total);
}

/* Rows `start` to `stop` of the list, `width` columns from `first`. `blocks` and `factors` are constants, and `kernel`
 * is the function that this becomes. */
INLINE void NAME(rows)(const struct gnnloom_product *given, int64_t start, int64_t stop, int64_t first, int64_t width,
                       const int blocks, const enum factors factors, panel_kernel *const kernel) {
    /* Copied, since the compiler has to assume that a store to the output may change the original. */
    const struct gnnloom_product product = *given;
    const STORED *const dense = (const STORED *)product.dense + first;
    for (int64_t listed = start; listed < stop; listed++) {
        const int64_t begin = product.begin[listed], end = product.end[listed];
        NAME(block) total[MOST_BLOCKS];
#if SUM_BYTES < 8
        if (__builtin_expect(end - begin > SEGMENT, 0)) {
            TYPE(long_row)(given, listed, first, width, kernel);
            continue;
        }
#else
        (void)kernel;
#endif
        NAME(prefetch_output)(&product, listed, stop, first, blocks);
        NAME(add_all)(&product, dense, begin, end, width, blocks, factors, total);
        const int64_t target = product.target ? product.target[listed] : listed;
        NAME(finish)(&product, target, first, width, blocks, total);
    }
}

/* One function for each number of blocks and kind of factors. */
#define DEFINE_ONE(BLOCKS, FUNCTION, FACTORS)                                                                    \
    static void JOIN(NAME(FUNCTION), BLOCKS)(const struct gnnloom_product *product, int64_t start, int64_t stop, \
                                             int64_t first, int64_t width) {                                     \
        NAME(rows)(product, start, stop, first, width, BLOCKS, FACTORS, JOIN(NAME(FUNCTION), BLOCKS));           \
    }
#define DEFINE(BLOCKS)                   \
    DEFINE_ONE(BLOCKS, ones, ONES)       \
    DEFINE_ONE(BLOCKS, weights, WEIGHTS) \
    DEFINE_ONE(BLOCKS, scaled, COLUMN_SCALE)
#define LIST(BLOCKS) {JOIN(NAME(ones), BLOCKS), JOIN(NAME(weights), BLOCKS), JOIN(NAME(scaled), BLOCKS)},

/* The same with factors of runs, for rows of one or two blocks: wider ones wait for their own cache lines most. */
#define DEFINE_RUNS(BLOCKS) DEFINE_ONE(BLOCKS, runs, COLUMN_RUNS)
UP_TO_2(DEFINE_RUNS)

/* clang-format off: it takes the list of functions for a declaration */
JOIN(UP_TO_, MOST_BLOCKS)(DEFINE) static panel_kernel *const
    NAME(kernels)[MOST_BLOCKS][3] = {JOIN(UP_TO_, MOST_BLOCKS)(LIST)};
/* clang-format on */

/* Rows of any width from LANES up, in panels of as many columns as there are registers for the sums. */
static void NAME(panels)(const struct gnnloom_product *given, int64_t start, int64_t stop) {
    struct gnnloom_product product = *given;
    const enum factors factors = product.values ? WEIGHTS : product.column_scale ? COLUMN_SCALE : ONES;
    const int64_t blocks = (product.dim + LANES - 1) / LANES, panels = (blocks + MOST_BLOCKS - 1) / MOST_BLOCKS;
    /* Stores around the caches need whole, aligned vectors. */
    product.stream = product.stream && !product.accumulate && !product.wide_out && product.dim % LANES == 0 &&
                     (uintptr_t)product.out % VECTOR_BYTES == 0 && product.out_stride % LANES == 0;
    if (blocks <= 2 && product.column_runs) {
        (blocks == 1 ? JOIN(NAME(runs), 1) : JOIN(NAME(runs), 2))(&product, start, stop, 0, product.dim);
        return;
    }
    if (panels == 1) {
        NAME(kernels)[blocks - 1][factors](&product, start, stop, 0, product.dim);
        return;
    }
    for (int64_t row = start; row < stop; row++)
        for (int64_t panel = 0; panel < panels; panel++) {
            const int64_t from = panel * blocks / panels, to = (panel + 1) * blocks / panels;
            const int64_t first = from * LANES, width = smaller(to * LANES, product.dim) - first;
            NAME(kernels)[to - from - 1][factors](&product, row, row + 1, first, width);
        }
}

#undef DEFINE_ONE
#undef DEFINE
#undef DEFINE_RUNS
#undef LIST
#undef NAME
#undef LANES
#undef CHOOSE
#undef PARTS
#undef MOST_BLOCKS
#undef VECTOR_BYTES
