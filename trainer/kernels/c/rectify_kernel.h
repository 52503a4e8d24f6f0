/* Included once for each type, without a guard: the passes over rows of STORED numbers, computed in SUM. */

INLINE void TYPE(load)(const STORED *from, SUM *values, int64_t count) {
    for (int64_t lane = 0; lane < count; lane++) {
#ifdef BFLOAT16
        const uint32_t bits = (uint32_t)from[lane] << 16;
        memcpy(&values[lane], &bits, sizeof bits);
#else
        values[lane] = from[lane];
#endif
    }
}

INLINE void TYPE(store)(const SUM *values, STORED *to, int64_t count) {
    for (int64_t lane = 0; lane < count; lane++) {
#ifdef BFLOAT16
        uint32_t bits;
        memcpy(&bits, &values[lane], sizeof bits);
        to[lane] = narrowed(bits);
#else
        to[lane] = values[lane];
#endif
    }
}

/* Zero where the hash of a feature is below the threshold, scaled elsewhere. */
INLINE void TYPE(drop)(const struct gnnloom_rows *rows, uint64_t keys, int64_t first, SUM *values, int64_t count) {
    const uint32_t start = (uint32_t)(rows->first_column + first) + (uint32_t)keys;
    const SUM scale = (SUM)rows->scale;
    for (int64_t lane = 0; lane < count; lane++) {
        const uint32_t hash = mix32(start + (uint32_t)lane, (uint32_t)(keys >> 32));
        const SUM scaled = values[lane] * scale;
        values[lane] = hash >= rows->threshold ? scaled : 0;
    }
}

/* A number that is not finite passes, so that a run that diverges shows it in its loss. */
INLINE uint32_t TYPE(rectify)(const struct gnnloom_rows *rows, uint64_t keys, int64_t first, SUM *values,
                              int64_t count) {
    const SUM *bias = (const SUM *)rows->bias + first;
    for (int64_t lane = 0; lane < count; lane++) {
        const SUM value = values[lane] + bias[lane];
        values[lane] = value <= 0 ? 0 : value;
    }
    if (rows->vertex)
        TYPE(drop)(rows, keys, first, values, count);
    uint32_t bits = 0;
    for (int64_t lane = 0; lane < count; lane++)
        bits |= (uint32_t)(values[lane] != 0) << lane;
    return bits;
}

INLINE void TYPE(select)(const struct gnnloom_rows *rows, uint32_t bits, SUM *values, int64_t count) {
    const SUM scale = (SUM)rows->scale;
    for (int64_t lane = 0; lane < count; lane++) {
        const SUM scaled = values[lane] * scale;
        values[lane] = (bits >> lane) & 1u ? scaled : 0;
    }
}

/* Features `first` to `first + count` of a row. */
INLINE void TYPE(word)(const struct gnnloom_rows *rows, int64_t row, uint64_t keys, int64_t first, int64_t count) {
    const int64_t words = (rows->dim + GNNLOOM_LANES - 1) / GNNLOOM_LANES;
    uint32_t *passed = rows->passed ? rows->passed + row * words + first / GNNLOOM_LANES : NULL;
    SUM values[GNNLOOM_LANES];
    TYPE(load)((const STORED *)rows->source + row * rows->dim + first, values, count);
    if (rows->step == GNNLOOM_RECTIFY)
        *passed = TYPE(rectify)(rows, keys, first, values, count);
    else if (rows->step == GNNLOOM_SELECT)
        TYPE(select)(rows, *passed, values, count);
    else
        TYPE(drop)(rows, keys, first, values, count);
    TYPE(store)(values, (STORED *)rows->result + row * rows->dim + first, count);
}

VECTORIZED void TYPE(rows)(const struct gnnloom_rows *rows, int64_t start, int64_t stop) {
    for (int64_t row = start; row < stop; row++) {
        const uint64_t keys = rows->vertex ? mix64((uint64_t)rows->vertex[row] ^ rows->key) : 0;
        int64_t first = 0;
        /* A constant count makes vectors of the loops. */
        for (; first + GNNLOOM_LANES <= rows->dim; first += GNNLOOM_LANES)
            TYPE(word)(rows, row, keys, first, GNNLOOM_LANES);
        if (first < rows->dim)
            TYPE(word)(rows, row, keys, first, rows->dim - first);
    }
}
