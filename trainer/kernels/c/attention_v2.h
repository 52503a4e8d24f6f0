/* Included once for each instruction set and type, without a guard, by attention_sizes.h: attention with the scores of
 * GATv2, a . LeakyReLU(z_j + t_i). Defines TYPE(attend_v2).
 *
 * A few entries at a time: their scores, with the rows that these need fetched ahead, and then sums over the same rows,
 * which are still in the caches. What a vertex itself has is widened to blocks (`spread`) before its entries are read.
 */

/* Memory for blocks: of 8 heads, and of all heads. */
typedef struct {
    SUM *own;   /* values z of a column, or t of a row */
    SUM *other; /* values of a column, or the output's gradient of a row, without the columns that blocks share */
    SUM *sums;
    SUM *slopes;
    SUM *vector;        /* the vectors a of all heads */
    SUM *vector_apart;  /* without the columns that blocks share */
    SUM *recent;        /* sums of the gradient of a that are not yet in those of the range */
    double *whole_sums; /* of segments, of 8 heads */
    double *whole_slopes;
} TYPE(room);

/* Rows or columns whose gradients of a are summed, before these sums are added in float64. */
enum { TYPE(recent_rows) = 1024 };

/* to += one * other, or to = one * other. */
APART void TYPE(multiply)(SUM *to, const SUM *one, const SUM *other, int64_t length, int adds) {
    int64_t at = 0;
    for (; at + COLUMNS <= length; at += COLUMNS) {
        const NAME(block) first = NAME(load_sums)(one + at), second = NAME(load_sums)(other + at);
        NAME(block) sum = NAME(load_sums)(to + at);
        EACH (part, PARTS)
            sum.part[part] =
                adds ? sum.part[part] + first.part[part] * second.part[part] : first.part[part] * second.part[part];
        NAME(store_sums)(to + at, sum);
    }
    for (; at < length; at++)
        to[at] = adds ? to[at] + one[at] * other[at] : one[at] * other[at];
}

/* The ids of the next entries, the last one repeated for entries that are computed together with it. */
INLINE void TYPE(read_v2)(const struct gnnloom_attention *given, TYPE(entries) * entries, int64_t first, int64_t end,
                          const SUM *numbers) {
    int64_t some = smaller(MOST_ENTRIES, end - first);
    /* Few entries fit the first-level cache in any case, and the division takes as long as one of them. */
    if (some > 16) {
        const int64_t most = 16384 / (entries->heads * given->dim * (int64_t)sizeof(STORED)) / 4 * 4;
        some = smaller(some, most < 16 ? 16 : most);
    }
    TYPE(read)(given, entries, first, some, numbers, 3 * given->heads);
    for (int64_t k = entries->count; k % 4; k++)
        entries->id[k] = entries->id[entries->count - 1];
}

/* Up to 8 heads of one row. */
VECTORIZED void TYPE(attend_row_v2)(const struct gnnloom_attention *given, const TYPE(block_kernels) * kernels,
                                    int64_t row, int64_t head, TYPE(entries) * entries, const TYPE(room) * room) {
    const int64_t begin = given->offsets[row], end = given->offsets[row + 1], at = row * given->heads + head;
    const int64_t heads = entries->heads, lanes = entries->lanes, dim = given->dim;
    const int64_t pitch = TYPE(pitch)(given, kernels);
    SUM *const maximum = (SUM *)given->maximum + at, *const total = (SUM *)given->total + at;
    SUM *const weighted = (SUM *)given->weighted + at * dim;
    const int is_long = TYPE(is_long)(end - begin);
    SUM highest[8], sum[8], factor[8], ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    double whole_sum[8];
    int64_t segment = begin;
    if (begin == end && !given->begins && !given->output)
        return;
    for (int64_t lane = 0; lane < 8; lane++) {
        highest[lane] = given->begins || lane >= heads ? -(SUM)INFINITY : maximum[lane];
        sum[lane] = given->begins || lane >= heads ? 0 : total[lane];
    }
    if (given->begins)
        memset(room->sums, 0, (size_t)(heads * pitch) * sizeof(SUM));
    else
        kernels->resume(weighted, ones, heads, dim, room->sums);
    if (begin < end)
        kernels->spread((const STORED *)given->target + at * dim, heads, dim, room->own, 0);
    if (is_long) {
        TYPE(carry)(room->whole_sums, room->sums, heads * pitch, 1);
        TYPE(carry)(whole_sum, sum, 8, 1);
    }
    for (int64_t entry = begin; entry < end; entry += entries->count) {
        SUM found[8], added[8];
        if (is_long && entry - segment >= ATTENTION_SEGMENT) {
            TYPE(carry)(room->whole_sums, room->sums, heads * pitch, 0);
            TYPE(carry)(whole_sum, sum, 8, 0);
            segment = entry;
        }
        TYPE(read_v2)(given, entries, entry, end, NULL);
        kernels->scores(given, entries, (const STORED *)given->values + head * dim, room->own,
                        room->vector_apart + head * pitch, NULL);
        TYPE(repeat)(entries, entries->score);
        NAME(block) most = TYPE(tiled)(highest, lanes, lanes);
        for (int64_t block = 0; block < TYPE(num_blocks)(entries); block++) {
            const NAME(block) score = NAME(load_sums)(entries->score + block * COLUMNS);
            EACH (part, PARTS) {
                const NAME(integers) above = (NAME(integers))(score.part[part] > most.part[part]);
                most.part[part] = (NAME(vector))((above & (NAME(integers))score.part[part]) |
                                                 (~above & (NAME(integers))most.part[part]));
            }
        }
        TYPE(fold_lanes)(most, lanes, found, 0);
        /* Sums of earlier entries are scaled down to the new maximum. */
        int grows = 0;
        for (int64_t lane = 0; lane < lanes; lane++) {
            factor[lane] = 1;
            if (lane < heads && found[lane] != highest[lane]) {
                factor[lane] = TYPE(exp_of)(highest[lane] - found[lane]);
                grows = 1;
            }
            highest[lane] = found[lane];
        }
        if (grows && (entry > begin || !given->begins))
            for (int64_t each = 0; each < heads; each++)
                for (int64_t d = 0; d < pitch; d++)
                    room->sums[each * pitch + d] *= factor[each];
        if (grows && is_long)
            for (int64_t each = 0; each < heads; each++) {
                whole_sum[each] *= factor[each];
                for (int64_t d = 0; d < pitch; d++)
                    room->whole_sums[each * pitch + d] *= factor[each];
            }
        const NAME(block) weights = TYPE(weighed)(entries, TYPE(tiled)(highest, lanes, lanes), (NAME(block)){{{0}}});
        TYPE(fold_lanes)(weights, lanes, added, 1);
        for (int64_t each = 0; each < heads; each++)
            sum[each] = sum[each] * factor[each] + added[each];
        TYPE(panels)(given, kernels, entries, head, heads, NULL, room->sums);
    }
    if (is_long) {
        TYPE(settle)(room->whole_sums, room->sums, heads * pitch);
        TYPE(settle)(whole_sum, sum, 8);
    }
    for (int64_t each = 0; each < heads; each++) {
        total[each] = sum[each];
        maximum[each] = highest[each];
        /* The entry with the largest score adds 1, so only the total of a row without entries is below 1. */
        factor[each] = sum[each] < 1 ? 1 : sum[each];
    }
    if (given->output)
        kernels->finish(room->sums, factor, heads, dim, (STORED *)given->output + at * dim, 0);
    else
        kernels->finish(room->sums, NULL, heads, dim, weighted, 1);
}

/* What the entries' rows have: maxima, factors, and sums along the features. */
INLINE void TYPE(numbers_of_rows)(const struct gnnloom_attention *given, TYPE(entries) * entries, int64_t head,
                                  int64_t heads, int64_t lanes) {
    for (int64_t k = 0; k < entries->count; k++) {
        const SUM *const row = (const SUM *)given->row_numbers + entries->id[k] * 3 * given->heads + head;
        TYPE(copy)(entries->maximum + k * lanes, row, heads, lanes);
        TYPE(copy)(entries->factor + k * lanes, row + given->heads, heads, lanes);
        TYPE(copy)(entries->along + k * lanes, row + 2 * given->heads, heads, lanes);
    }
}

/* Weights of the entries, which are final. If they are entries of one row, its numbers are in the first block. */
APART void TYPE(weights_v2)(TYPE(entries) * entries, int of_row) {
    TYPE(repeat)(entries, entries->score);
    for (int64_t block = 0; block < TYPE(num_blocks)(entries); block++) {
        const int64_t at = of_row ? 0 : block * COLUMNS;
        NAME(block) score = NAME(load_sums)(entries->score + block * COLUMNS);
        const NAME(block) maximum = NAME(load_sums)(entries->maximum + at);
        const NAME(block) factor = NAME(load_sums)(entries->factor + at);
        EACH (part, PARTS)
            score.part[part] = TYPE(exp)(score.part[part] - maximum.part[part]) * factor.part[part];
        NAME(store_sums)(entries->weight + block * COLUMNS, score);
    }
}

/* Gradients of the entries' scores, in place of the scalar products; 0 for what follows the last entry. */
APART void TYPE(score_gradients)(TYPE(entries) * entries, int of_row) {
    for (int64_t block = 0; block < TYPE(num_blocks)(entries); block++) {
        const NAME(block) weight = NAME(load_sums)(entries->weight + block * COLUMNS);
        const NAME(block) along = NAME(load_sums)(entries->along + (of_row ? 0 : block * COLUMNS));
        NAME(block) dot = NAME(load_sums)(entries->dot + block * COLUMNS);
        EACH (part, PARTS)
            dot.part[part] = weight.part[part] * (dot.part[part] - along.part[part]);
        NAME(store_sums)(entries->dot + block * COLUMNS, dot);
    }
    for (int64_t at = entries->count * entries->lanes; at < (entries->count + 3) / 4 * 4 * entries->lanes; at++)
        entries->dot[at] = 0;
}

/* Up to 8 heads of one column. */
VECTORIZED void TYPE(column_v2)(const struct gnnloom_attention *given, const TYPE(block_kernels) * kernels,
                                int64_t column, int64_t head, TYPE(entries) * entries, const TYPE(room) * room) {
    const int64_t begin = given->offsets[column], end = given->offsets[column + 1], at = column * given->heads + head;
    const int64_t heads = entries->heads, dim = given->dim, pitch = TYPE(pitch)(given, kernels);
    const STORED *const targets = (const STORED *)given->target + head * dim;
    const int is_long = TYPE(is_long)(end - begin);
    int64_t segment = begin;
    memset(room->sums, 0, (size_t)(heads * pitch) * sizeof(SUM));
    memset(room->slopes, 0, (size_t)(heads * pitch) * sizeof(SUM));
    if (is_long) {
        TYPE(carry)(room->whole_sums, room->sums, heads * pitch, 1);
        TYPE(carry)(room->whole_slopes, room->slopes, heads * pitch, 1);
    }
    if (begin < end) {
        kernels->spread((const STORED *)given->values + at * dim, heads, dim, room->own, 0);
        kernels->spread((const STORED *)given->values + at * dim, heads, dim, room->other, 1);
    }
    for (int64_t entry = begin; entry < end; entry += entries->count) {
        if (is_long && entry - segment >= ATTENTION_SEGMENT) {
            TYPE(carry)(room->whole_sums, room->sums, heads * pitch, 0);
            TYPE(carry)(room->whole_slopes, room->slopes, heads * pitch, 0);
            segment = entry;
        }
        TYPE(read_v2)(given, entries, entry, end, (const SUM *)given->row_numbers + head);
        BY_LANES(numbers_of_rows, given, entries, head)
        TYPE(repeat)(entries, entries->maximum);
        kernels->scores(given, entries, targets, room->own, room->vector_apart + head * pitch, NULL);
        TYPE(weights_v2)(entries, 0);
        TYPE(panels)(given, kernels, entries, head, heads, room->other, room->sums);
        TYPE(score_gradients)(entries, 0);
        kernels->slopes(given, entries, targets, room->own, room->slopes);
    }
    if (is_long) {
        TYPE(settle)(room->whole_sums, room->sums, heads * pitch);
        TYPE(settle)(room->whole_slopes, room->slopes, heads * pitch);
    }
    if (begin < end) {
        TYPE(multiply)(room->recent + head * pitch, room->own, room->slopes, heads * pitch, 1);
        TYPE(multiply)(room->sums, room->vector + head * pitch, room->slopes, heads * pitch, 1);
    }
    kernels->finish(room->sums, NULL, heads, dim, (STORED *)given->of_values + at * dim, 0);
}

/* Up to 8 heads of one row. */
VECTORIZED void TYPE(row_v2)(const struct gnnloom_attention *given, const TYPE(block_kernels) * kernels, int64_t row,
                             int64_t head, TYPE(entries) * entries, const TYPE(room) * room) {
    const int64_t begin = given->offsets[row], end = given->offsets[row + 1], at = row * given->heads + head;
    const int64_t heads = entries->heads, dim = given->dim, pitch = TYPE(pitch)(given, kernels);
    const SUM *const numbers = (const SUM *)given->row_numbers + row * 3 * given->heads + head;
    const STORED *const values = (const STORED *)given->values + head * dim;
    const int is_long = TYPE(is_long)(end - begin);
    int64_t segment = begin;
    memset(room->slopes, 0, (size_t)(heads * pitch) * sizeof(SUM));
    if (is_long)
        TYPE(carry)(room->whole_slopes, room->slopes, heads * pitch, 1);
    if (begin < end) {
        kernels->spread((const STORED *)given->target + at * dim, heads, dim, room->own, 0);
        kernels->spread((const STORED *)given->gradient + at * dim, heads, dim, room->other, 1);
        NAME(store_sums)(entries->maximum, TYPE(tiled)(numbers, heads, entries->lanes));
        NAME(store_sums)(entries->factor, TYPE(tiled)(numbers + given->heads, heads, entries->lanes));
        NAME(store_sums)(entries->along, TYPE(tiled)(numbers + 2 * given->heads, heads, entries->lanes));
    }
    for (int64_t entry = begin; entry < end; entry += entries->count) {
        if (is_long && entry - segment >= ATTENTION_SEGMENT) {
            TYPE(carry)(room->whole_slopes, room->slopes, heads * pitch, 0);
            segment = entry;
        }
        TYPE(read_v2)(given, entries, entry, end, NULL);
        kernels->scores(given, entries, values, room->own, room->vector_apart + head * pitch, room->other);
        TYPE(weights_v2)(entries, 1);
        TYPE(score_gradients)(entries, 1);
        kernels->slopes(given, entries, values, room->own, room->slopes);
    }
    if (is_long)
        TYPE(settle)(room->whole_slopes, room->slopes, heads * pitch);
    if (begin < end) {
        TYPE(multiply)(room->recent + head * pitch, room->own, room->slopes, heads * pitch, 1);
        TYPE(multiply)(room->slopes, room->slopes, room->vector + head * pitch, heads * pitch, 0);
    }
    kernels->finish(room->slopes, NULL, heads, dim, (STORED *)given->of_target + at * dim, 0);
}

/* Add the recent sums of the gradient of a to those of a range, and clear them. */
static void TYPE(add_recent)(const struct gnnloom_attention *given, const TYPE(block_kernels) * kernels, SUM *recent,
                             double *sums) {
    const int64_t pitch = TYPE(pitch)(given, kernels), dim = given->dim, last = pitch - kernels->columns;
    for (int64_t head = 0; head < given->heads; head++)
        for (int64_t d = 0; d < dim; d++)
            sums[head * dim + d] += recent[head * pitch + (d < last ? d : d + pitch - dim)];
    memset(recent, 0, (size_t)(given->heads * pitch) * sizeof(SUM));
}

static void TYPE(attend_v2)(const struct gnnloom_attention *given, const TYPE(block_kernels) * kernels, int64_t number,
                            int64_t start, int64_t stop, TYPE(entries) * entries, void *scratch) {
    const int64_t heads = given->heads, dim = given->dim, pitch = TYPE(pitch)(given, kernels);
    const int64_t some = 8 * (dim + 16), all = (heads + 1) * (dim + 16);
    double *const whole = scratch;
    SUM *const own = (SUM *)(whole + 2 * some), *const wide = own + 4 * some;
    const TYPE(room)
        room = {own, own + some, own + 2 * some, own + 3 * some, wide, wide + all, wide + 2 * all, whole, whole + some};
    const int has_gradient = given->step != GNNLOOM_ATTEND_V2;
    double *of_vector = given->of_source;
    const SUM one = 1;
    for (int64_t head = 0; head < heads; head++) {
        SUM *const vector = room.vector + head * pitch, *const apart = room.vector_apart + head * pitch;
        kernels->resume((const SUM *)given->source + head * dim, &one, 1, dim, vector);
        memcpy(apart, vector, (size_t)pitch * sizeof(SUM));
        memset(apart + pitch - kernels->columns, 0, (size_t)(pitch - dim) * sizeof(SUM));
    }
    memset(room.recent, 0, (size_t)all * sizeof(SUM));
    if (has_gradient) {
        of_vector += (given->first_range + number) * heads * dim;
        memset(of_vector, 0, (size_t)(heads * dim) * sizeof(double));
    }
    for (int64_t row = start; row < stop; row++) {
        for (int64_t head = 0; head < heads; head += 8) {
            entries->heads = smaller(8, heads - head);
            entries->lanes = TYPE(lanes_for)(entries->heads);
            if (given->step == GNNLOOM_ATTEND_V2)
                TYPE(attend_row_v2)(given, kernels, row, head, entries, &room);
            else if (given->step == GNNLOOM_COLUMNS_V2)
                TYPE(column_v2)(given, kernels, row, head, entries, &room);
            else
                TYPE(row_v2)(given, kernels, row, head, entries, &room);
        }
        if (has_gradient && (row + 1 == stop || (row + 1 - start) % TYPE(recent_rows) == 0))
            TYPE(add_recent)(given, kernels, room.recent, of_vector);
    }
}
