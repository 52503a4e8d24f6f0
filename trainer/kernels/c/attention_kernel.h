/* Included once for each instruction set, type and block size, without a guard.
 *
 * BLOCK_BYTES   bytes of the sums of a block of columns
 * SUM_BYTES     bytes of one sum
 * MOST_BLOCKS   blocks of a head that are computed at a time
 *
 * A block is one or more vectors of sums: it has as many columns on every instruction set, so that scalar products,
 * which are summed column by column of a block and then by halves of it, have the same bits everywhere. The last block
 * of a head ends where the head does, and may overlap the one before it: columns that both have are left out of scalar
 * products.
 */
/* Sparse products have names of their own for the same. */
#define NAME(name) JOIN(JOIN(attention_, TYPE(name)), BLOCK_BYTES)
#define COLUMNS (BLOCK_BYTES / SUM_BYTES)
#if BLOCK_BYTES < WIDEST
#define PART_BYTES BLOCK_BYTES
#else
#define PART_BYTES WIDEST
#endif
#define PARTS (BLOCK_BYTES / PART_BYTES)
#define LANES (PART_BYTES / SUM_BYTES)

typedef SUM NAME(vector) __attribute__((vector_size(PART_BYTES)));
typedef INTEGER NAME(integers) __attribute__((vector_size(PART_BYTES)));
/* In memory, aligned like its elements. */
typedef SUM NAME(loose) __attribute__((vector_size(PART_BYTES), aligned(SUM_BYTES), may_alias));

typedef struct {
    NAME(vector) part[PARTS];
} NAME(block);

INLINE NAME(block) NAME(load_sums)(const SUM *from) {
    NAME(block) block;
    EACH (part, PARTS)
        block.part[part] = *(const NAME(loose) *)(from + part * LANES);
    return block;
}

INLINE void NAME(store_sums)(SUM *to, NAME(block) block) {
    EACH (part, PARTS)
        *(NAME(loose) *)(to + part * LANES) = block.part[part];
}

#ifdef BFLOAT16
typedef uint16_t NAME(halves) __attribute__((vector_size(PART_BYTES / 2)));
typedef uint16_t NAME(loose_halves) __attribute__((vector_size(PART_BYTES / 2), aligned(2), may_alias));
typedef uint32_t NAME(words) __attribute__((vector_size(PART_BYTES)));
#endif

INLINE NAME(block) NAME(load)(const STORED *from) {
#ifdef BFLOAT16
    NAME(block) block;
    EACH (part, PARTS)
        block.part[part] =
            (NAME(vector))(__builtin_convertvector(*(const NAME(loose_halves) *)(from + part * LANES), NAME(words))
                           << 16);
    return block;
#else
    return NAME(load_sums)(from);
#endif
}

INLINE void NAME(store)(STORED *to, NAME(block) block) {
#ifdef BFLOAT16
    EACH (part, PARTS) {
        const NAME(vector) value = block.part[part];
        NAME(words) bits = (NAME(words))value, is_nan = (NAME(words))(value != value);
        bits = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        bits = (bits & ~is_nan) | (is_nan & 0x7fc0);
        *(NAME(loose_halves) *)(to + part * LANES) = __builtin_convertvector(bits, NAME(halves));
    }
#else
    NAME(store_sums)(to, block);
#endif
}

/* The sum of vectors that have the lanes of a block one after the other: the upper half of its columns is added to the
 * lower half until one vector is left. */
INLINE NAME(vector) NAME(halved)(NAME(block) block) {
#if PARTS == 4
    block.part[0] += block.part[2];
    block.part[1] += block.part[3];
#endif
#if PARTS >= 2
    block.part[0] += block.part[1];
#endif
    return block.part[0];
}

#define PICK(first, second, ...) __builtin_shuffle(first, second, (NAME(integers)){__VA_ARGS__})
#ifdef __clang__
#undef PICK
#define PICK(first, second, ...) __builtin_shufflevector(first, second, __VA_ARGS__)
#endif
/* Half of the vectors: each is two of them, of whose groups of lanes the upper halves are added to the lower ones. */
#define FOLD(count, lower, upper) \
    EACH (at, (count) / 2)        \
    vectors[at] = PICK(vectors[2 * at], vectors[2 * at + 1], lower) + PICK(vectors[2 * at], vectors[2 * at + 1], upper)

/* Store the sums of the lanes of vectors, in their order. Overwrites the vectors, and what follows the last one and its
 * sum up to a multiple of LANES. */
APART void NAME(fold)(NAME(vector) *vectors, int64_t count, SUM *to) {
    for (int64_t at = count; at % LANES; at++)
        vectors[at] = (NAME(vector)){0};
    for (; count > 0; count -= LANES, vectors += LANES, to += LANES) {
#if LANES == 16
        FOLD(16, LOWER_8_OF_16, UPPER_8_OF_16);
        FOLD(8, LOWER_4_OF_16, UPPER_4_OF_16);
        FOLD(4, LOWER_2_OF_16, UPPER_2_OF_16);
        FOLD(2, LOWER_1_OF_16, UPPER_1_OF_16);
#elif LANES == 8
        FOLD(8, LOWER_4_OF_8, UPPER_4_OF_8);
        FOLD(4, LOWER_2_OF_8, UPPER_2_OF_8);
        FOLD(2, LOWER_1_OF_8, UPPER_1_OF_8);
#elif LANES == 4
        FOLD(4, LOWER_2_OF_4, UPPER_2_OF_4);
        FOLD(2, LOWER_1_OF_4, UPPER_1_OF_4);
#elif LANES == 2
        FOLD(2, LOWER_1_OF_2, UPPER_1_OF_2);
#endif
        *(NAME(loose) *)to = vectors[0];
    }
}

/* The LeakyReLU of a score, or what it makes of the score's gradient. */
INLINE NAME(vector) NAME(leaky)(NAME(vector) value, NAME(vector) score, SUM slope) {
    const NAME(integers) above = (NAME(integers))(score > 0);
    return (NAME(vector))((above & (NAME(integers))value) | (~above & (NAME(integers))(value * slope)));
}

/* First column of a block of a panel. */
INLINE int64_t NAME(start)(int block, const int blocks, int64_t width) {
    return block == blocks - 1 ? width - COLUMNS : block * COLUMNS;
}

/* Fetch the rows of entries that come later: their cache misses overlap with the sums of this one. Whole heads follow
 * each other, so that the addresses of their lines are one address and constants. */
INLINE void NAME(ahead)(const struct gnnloom_attention *given, const STORED *matrix, int64_t entry, int64_t width,
                        const int heads, const int blocks) {
    const int head_bytes = blocks * COLUMNS * (int)sizeof(STORED), ahead = ahead_of(heads * head_bytes);
    if (entry + ahead >= given->num_entries)
        return;
    const char *row =
        (const char *)(matrix + id_of(given->ids, given->wide_ids, entry + ahead) * given->heads * given->dim);
    if (width == given->dim) {
        EACH (line, (heads * head_bytes + CACHE_LINE - 1) / CACHE_LINE)
            __builtin_prefetch(row + line * CACHE_LINE);
        return;
    }
    EACH (head, heads)
        EACH (line, (head_bytes + CACHE_LINE - 1) / CACHE_LINE)
            __builtin_prefetch(row + head * given->dim * (int64_t)sizeof(STORED) + line * CACHE_LINE);
}

/* Add the weighted values of some entries to sums, for some heads from `lane` on of the entries' lanes. */
INLINE void NAME(sum)(const struct gnnloom_attention *given, const TYPE(entries) * entries, int64_t first, int lane,
                      int64_t width, SUM *sums, const int64_t pitch, const int heads, const int blocks) {
    const int64_t row = given->heads * given->dim, dim = given->dim, count = entries->count;
    const STORED *const matrix = (const STORED *)given->values + first;
    NAME(block) total[MOST_VECTORS];
    EACH (head, heads)
        EACH (block, blocks)
            total[head * blocks + block] = NAME(load_sums)(sums + head * pitch + block * COLUMNS);
    for (int64_t k = 0; k < count; k++) {
        const STORED *const from = matrix + entries->id[k] * row;
        const SUM *const weight = entries->weight + k * entries->lanes + lane;
        NAME(ahead)(given, matrix, entries->first + k, width, heads, blocks);
        EACH (head, heads)
            EACH (block, blocks) {
                const NAME(block) value = NAME(load)(from + head * dim + NAME(start)(block, blocks, width));
                EACH (part, PARTS)
                    total[head * blocks + block].part[part] += weight[head] * value.part[part];
            }
    }
    EACH (head, heads)
        EACH (block, blocks)
            NAME(store_sums)(sums + head * pitch + block * COLUMNS, total[head * blocks + block]);
}

/* Store the scalar products of `count` entries with some heads, or add them to those of earlier panels. */
APART void NAME(keep)(TYPE(entries) * entries, int64_t k, int64_t count, int64_t lane, int64_t heads, int adds,
                      NAME(vector) *vectors) {
    SUM found[MOST_PENDING];
    SUM *to = entries->dot + k * entries->lanes + lane;
    /* What follows the last entry is written later, or never read. */
    if (!adds && entries->lanes == heads) {
        NAME(fold)(vectors, count * heads, to);
        return;
    }
    NAME(fold)(vectors, count * heads, found);
    /* Half of 8 heads, which is what most registers have room for. */
    if (!adds && heads == 4) {
        for (int64_t entry = 0; entry < count; entry++, to += entries->lanes)
            memcpy(to, found + entry * 4, 4 * sizeof(SUM));
        return;
    }
    for (int64_t entry = 0; entry < count; entry++, to += entries->lanes)
        for (int64_t head = 0; head < heads; head++)
            to[head] = adds ? to[head] + found[entry * heads + head] : found[entry * heads + head];
}

/* For some heads of a column, the scalar products of its values with the gradients of its entries' rows, and the
 * weighted sum of these gradients. */
INLINE void NAME(gradients)(const struct gnnloom_attention *given, TYPE(entries) * entries, int64_t first, int lane,
                            int64_t width, const SUM *values, SUM *sums, const int64_t pitch, int adds, const int heads,
                            const int blocks) {
    const int unit = MOST_PENDING / heads;
    const int64_t row = given->heads * given->dim, dim = given->dim, count = entries->count;
    const STORED *const matrix = (const STORED *)given->gradient + first;
    NAME(block) total[MOST_VECTORS], value[MOST_VECTORS];
    EACH (head, heads)
        EACH (block, blocks) {
            total[head * blocks + block] = NAME(load_sums)(sums + head * pitch + block * COLUMNS);
            value[head * blocks + block] = NAME(load_sums)(values + head * pitch + block * COLUMNS);
        }
    for (int64_t k = 0; k < count; k += unit) {
        NAME(vector) products[MOST_PENDING];
        const int some = (int)smaller(unit, count - k);
        for (int each = 0; each < some; each++) {
            const STORED *const from = matrix + entries->id[k + each] * row;
            const SUM *const weight = entries->weight + (k + each) * entries->lanes + lane;
            NAME(ahead)(given, matrix, entries->first + k + each, width, heads, blocks);
            EACH (head, heads) {
                NAME(block) product;
                EACH (block, blocks) {
                    const NAME(block) gradient = NAME(load)(from + head * dim + NAME(start)(block, blocks, width));
                    EACH (part, PARTS) {
                        const NAME(vector) term = value[head * blocks + block].part[part] * gradient.part[part];
                        product.part[part] = block ? product.part[part] + term : term;
                        total[head * blocks + block].part[part] += weight[head] * gradient.part[part];
                    }
                }
                products[each * heads + head] = NAME(halved)(product);
            }
        }
        NAME(keep)(entries, k, some, lane, heads, adds, products);
    }
    EACH (head, heads)
        EACH (block, blocks)
            NAME(store_sums)(sums + head * pitch + block * COLUMNS, total[head * blocks + block]);
}

/* Entries whose scores of GATv2 are computed together: the loops go over the blocks of a head, and what is the same for
 * all entries is read once for all of them. */
enum { NAME(few) = PARTS == 4 ? 1 : PARTS == 2 ? 2 : 4 };

/* Vectors whose lanes are to be summed: one for each lane of entries that follow each other. */
typedef struct {
    NAME(vector) vectors[MOST_PENDING];
    SUM *to;
    int64_t filled;
} NAME(pending);

APART void NAME(clear_idle)(NAME(vector) *vectors, int64_t heads, int64_t lanes) {
    for (int64_t each = 0; each < NAME(few); each++)
        for (int64_t lane = heads; lane < lanes; lane++)
            vectors[each * lanes + lane] = (NAME(vector)){0};
}

/* The vectors of `few` more entries are there, without those of idle lanes: store the sums if there is no room for
 * more, or if these are the last ones. */
INLINE void NAME(push)(NAME(pending) *pending, int64_t heads, int64_t lanes, int is_last) {
    if (heads < lanes)
        NAME(clear_idle)(pending->vectors + pending->filled, heads, lanes);
    pending->filled += NAME(few) *lanes;
    if (pending->filled < MOST_PENDING && !is_last)
        return;
    NAME(fold)(pending->vectors, pending->filled, pending->to);
    pending->to += pending->filled;
    pending->filled = 0;
}

/* The scores of GATv2 of some heads of the entries, whose rows in a matrix are added to what the row or column itself
 * has; if `dots`, also the scalar products of these rows with others. */
INLINE void NAME(score)(const struct gnnloom_attention *given, TYPE(entries) * entries, const STORED *matrix,
                        const SUM *fixed, const SUM *vector, const SUM *others, const int dots) {
    const int64_t dim = given->dim, blocks = (dim + COLUMNS - 1) / COLUMNS, pitch = given->heads * dim;
    const int64_t heads = entries->heads, lanes = entries->lanes, ahead = ahead_of(heads * dim * (int)sizeof(STORED));
    NAME(pending) scores = {.to = entries->score, .filled = 0}, products = {.to = entries->dot, .filled = 0};
    for (int64_t k = 0; k < entries->count; k += NAME(few)) {
        const STORED *row[NAME(few)], *later[NAME(few)];
        EACH (each, NAME(few)) {
            const int64_t entry = entries->first + k + each + ahead;
            row[each] = matrix + entries->id[k + each] * pitch;
            later[each] =
                entry < given->num_entries ? matrix + id_of(given->ids, given->wide_ids, entry) * pitch : row[each];
        }
        for (int64_t head = 0; head < heads; head++) {
            NAME(block) score[NAME(few)], dot[NAME(few)];
            EACH (each, NAME(few))
                score[each] = dot[each] = (NAME(block)){{{0}}};
            for (int64_t block = 0; block < blocks; block++) {
                const int64_t to = (head * blocks + block) * COLUMNS;
                const int64_t at = head * dim + (block == blocks - 1 ? dim - COLUMNS : block * COLUMNS);
                const NAME(block) own = NAME(load_sums)(fixed + to), factor = NAME(load_sums)(vector + to);
                const NAME(block) other = NAME(load_sums)((dots ? others : fixed) + to);
                EACH (each, NAME(few)) {
                    const NAME(block) value = NAME(load)(row[each] + at);
                    __builtin_prefetch(later[each] + at);
                    EACH (part, PARTS) {
                        const NAME(vector) sum = value.part[part] + own.part[part];
                        score[each].part[part] += factor.part[part] * NAME(leaky)(sum, sum, (SUM)given->slope);
                        if (dots)
                            dot[each].part[part] += value.part[part] * other.part[part];
                    }
                }
            }
            EACH (each, NAME(few)) {
                scores.vectors[scores.filled + each * lanes + head] = NAME(halved)(score[each]);
                if (dots)
                    products.vectors[products.filled + each * lanes + head] = NAME(halved)(dot[each]);
            }
        }
        const int is_last = k + NAME(few) >= entries->count;
        NAME(push)(&scores, heads, lanes, is_last);
        if (dots)
            NAME(push)(&products, heads, lanes, is_last);
    }
}

static void NAME(scores)(const struct gnnloom_attention *given, TYPE(entries) * entries, const STORED *matrix,
                         const SUM *fixed, const SUM *vector, const SUM *others) {
    if (others)
        NAME(score)(given, entries, matrix, fixed, vector, others, 1);
    else
        NAME(score)(given, entries, matrix, fixed, vector, NULL, 0);
}

/* Add the gradients of the entries' scores, in place of the scalar products, times the slopes of the LeakyReLU. */
static void NAME(slopes)(const struct gnnloom_attention *given, const TYPE(entries) * entries, const STORED *matrix,
                         const SUM *fixed, SUM *sums) {
    const int64_t dim = given->dim, blocks = (dim + COLUMNS - 1) / COLUMNS, pitch = given->heads * dim;
    for (int64_t k = 0; k < entries->count; k += NAME(few))
        for (int64_t head = 0; head < entries->heads; head++) {
            const STORED *row[NAME(few)];
            NAME(vector) weight[NAME(few)];
            EACH (each, NAME(few)) {
                row[each] = matrix + entries->id[k + each] * pitch + head * dim;
                weight[each] = (NAME(vector)){0} + entries->dot[(k + each) * entries->lanes + head];
            }
            for (int64_t block = 0; block < blocks; block++) {
                const int64_t to = (head * blocks + block) * COLUMNS;
                const int64_t at = block == blocks - 1 ? dim - COLUMNS : block * COLUMNS;
                const NAME(block) own = NAME(load_sums)(fixed + to);
                NAME(block) total = NAME(load_sums)(sums + to);
                EACH (each, NAME(few)) {
                    const NAME(block) value = NAME(load)(row[each] + at);
                    EACH (part, PARTS)
                        total.part[part] +=
                            NAME(leaky)(weight[each], value.part[part] + own.part[part], (SUM)given->slope);
                }
                NAME(store_sums)(sums + to, total);
            }
        }
}

/* One function for each number of heads and blocks whose sums fit the registers. */
#define DEFINE(HEADS, BLOCKS)                                                                                   \
    static void JOIN(NAME(sum), JOIN(HEADS, BLOCKS))(const struct gnnloom_attention *given,                     \
                                                     const TYPE(entries) * entries, int64_t first, int lane,    \
                                                     int64_t width, SUM *sums, int64_t pitch) {                 \
        NAME(sum)(given, entries, first, lane, width, sums, pitch, HEADS, BLOCKS);                              \
    }                                                                                                           \
    static void JOIN(NAME(gradients), JOIN(HEADS, BLOCKS))(                                                     \
        const struct gnnloom_attention *given, TYPE(entries) * entries, int64_t first, int lane, int64_t width, \
        const SUM *values, SUM *sums, int64_t pitch, int adds) {                                                \
        NAME(gradients)(given, entries, first, lane, width, values, sums, pitch, adds, HEADS, BLOCKS);          \
    }
#define LIST(HEADS, BLOCKS) \
    [BINARY_##HEADS][BLOCKS - 1] = {JOIN(NAME(sum), JOIN(HEADS, BLOCKS)), JOIN(NAME(gradients), JOIN(HEADS, BLOCKS))},

#define PANELS JOIN(JOIN(PANELS_, HEADS_HERE), JOIN(_, MOST_BLOCKS))
/* clang-format off: it takes the list of functions for a declaration */
PANELS(DEFINE) static const TYPE(panel_kernels) NAME(kernels)[4][4] = {PANELS(LIST)};
/* clang-format on */

/* The blocks of some heads of a row, widened; without the columns that the last block shares with the one before it, if
 * `apart`. */
static void NAME(spread)(const STORED *row, int64_t heads, int64_t dim, SUM *to, int apart) {
    const int64_t blocks = (dim + COLUMNS - 1) / COLUMNS;
    for (int64_t head = 0; head < heads; head++, row += dim, to += blocks * COLUMNS) {
        for (int64_t block = 0; block < blocks; block++)
            NAME(store_sums)(to + block * COLUMNS,
                             NAME(load)(row + (block == blocks - 1 ? dim - COLUMNS : block * COLUMNS)));
        for (int64_t twice = 0; apart && twice < blocks * COLUMNS - dim; twice++)
            to[(blocks - 1) * COLUMNS + twice] = 0;
    }
}

/* The same of a row of sums, each head of which is multiplied by a factor. */
static void NAME(resume)(const SUM *row, const SUM *factor, int64_t heads, int64_t dim, SUM *to) {
    const int64_t blocks = (dim + COLUMNS - 1) / COLUMNS;
    for (int64_t head = 0; head < heads; head++, row += dim, to += blocks * COLUMNS)
        for (int64_t block = 0; block < blocks; block++) {
            NAME(block) sums = NAME(load_sums)(row + (block == blocks - 1 ? dim - COLUMNS : block * COLUMNS));
            EACH (part, PARTS)
                sums.part[part] *= factor[head];
            NAME(store_sums)(to + block * COLUMNS, sums);
        }
}

/* The reverse: sums are written as they are if `wide`, and otherwise divided by a divisor of each head. */
static void NAME(finish)(const SUM *sums, const SUM *divisor, int64_t heads, int64_t dim, void *row, int wide) {
    const int64_t blocks = (dim + COLUMNS - 1) / COLUMNS;
    for (int64_t head = 0; head < heads; head++, sums += blocks * COLUMNS)
        for (int64_t block = 0; block < blocks; block++) {
            const int64_t at = head * dim + (block == blocks - 1 ? dim - COLUMNS : block * COLUMNS);
            NAME(block) found = NAME(load_sums)(sums + block * COLUMNS);
            if (wide) {
                NAME(store_sums)((SUM *)row + at, found);
                continue;
            }
            if (divisor)
                EACH (part, PARTS)
                    found.part[part] /= divisor[head];
            NAME(store)((STORED *)row + at, found);
        }
}

/* Scalar products of heads `start` (the first one of a row) to `stop`, which follow each other, with those of another
 * matrix, or with vectors. */
static void NAME(dots)(const struct gnnloom_heads *given, const void *second, int64_t start, int64_t stop, SUM *to) {
    const int64_t dim = given->dim, blocks = (dim + COLUMNS - 1) / COLUMNS, twice = blocks * COLUMNS - dim;
    INTEGER bits[COLUMNS];
    NAME(block) mask;
    for (int64_t column = 0; column < COLUMNS; column++)
        bits[column] = column < twice ? 0 : -1;
    memcpy(&mask, bits, sizeof mask);
    /* Of vectors, the one of the head. */
    int64_t turn = 0;
    for (int64_t at = start; at < stop; at += LANES) {
        NAME(vector) vectors[LANES];
        const int64_t some = smaller(LANES, stop - at);
        for (int64_t each = 0; each < some; each++) {
            const int64_t head = at + each, factor = given->vectors ? turn : head;
            turn = turn + 1 < given->heads ? turn + 1 : 0;
            const STORED *const row = (const STORED *)given->first + head * dim;
            NAME(block) sum = {{{0}}};
            for (int64_t block = 0; block < blocks; block++) {
                const int64_t from = block == blocks - 1 ? dim - COLUMNS : block * COLUMNS;
                const NAME(block) one = NAME(load)(row + from);
                const NAME(block) other = given->vectors ? NAME(load_sums)((const SUM *)second + factor * dim + from)
                                                         : NAME(load)((const STORED *)second + factor * dim + from);
                EACH (part, PARTS) {
                    NAME(vector) product = one.part[part] * other.part[part];
                    if (block == blocks - 1 && twice)
                        product = (NAME(vector))((NAME(integers))product & (NAME(integers))mask.part[part]);
                    sum.part[part] += product;
                }
            }
            vectors[each] = NAME(halved)(sum);
        }
        SUM found[LANES];
        NAME(fold)(vectors, some, found);
        for (int64_t each = 0; each < some; each++)
            to[at + each] = found[each];
    }
}

static const TYPE(block_kernels) NAME(functions) = {COLUMNS,      NAME(kernels), NAME(spread), NAME(resume),
                                                    NAME(finish), NAME(dots),    NAME(scores), NAME(slopes)};

#undef FOLD
#undef PICK
#undef DEFINE
#undef LIST
#undef PANELS
#undef NAME
#undef COLUMNS
#undef PART_BYTES
#undef PARTS
#undef LANES
#undef MOST_BLOCKS
#undef BLOCK_BYTES
