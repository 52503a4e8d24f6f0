/* Calls attention and its passes over heads with every instruction set, type, and many numbers of heads and widths, on
 * memory that has not a byte too many, for `make sanitize`: the address sanitizer reports what is read or written
 * beyond it. Sums and gradients are compared with plain loops. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../trainer/kernels/c/attention.h"

/* Few rows, whose sums are formed at once, or rows or columns whose sums are formed in segments. */
enum { MOST_ROWS = 1400, MOST_COLUMNS = 1400 };
static int64_t num_rows, num_columns;

int32_t gnnloom_best_instruction_set(void);
int32_t gnnloom_attend(const struct gnnloom_attention *given, const int64_t *bounds, int64_t num_ranges,
                       int32_t instruction_set, void *team, int32_t threads);
void gnnloom_heads(const struct gnnloom_heads *given, const int64_t *bounds, int64_t num_ranges,
                   int32_t instruction_set, void *team, int32_t threads);

static uint32_t state = 1;

static int64_t random_below(int64_t bound) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % bound;
}

static int32_t sums_of(int32_t dtype) {
    return dtype == GNNLOOM_BFLOAT16 ? GNNLOOM_FLOAT32 : dtype;
}

static size_t size_of(int32_t dtype) {
    return dtype == GNNLOOM_FLOAT64 ? 8 : dtype == GNNLOOM_FLOAT32 ? 4 : 2;
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

/* Eighths from -2 to 2, which every type holds exactly. */
static void *random_array(int64_t length, int32_t dtype) {
    char *array = malloc((size_t)length * size_of(dtype));
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

/* A pattern with empty rows, and ids of either width; the same pattern by columns. */
struct pattern {
    int64_t offsets[MOST_ROWS + 1], column_offsets[MOST_COLUMNS + 1];
    void *columns, *rows;
    int64_t entries;
};

static void put(void *ids, int64_t at, int64_t id, int wide) {
    if (wide)
        ((int64_t *)ids)[at] = id;
    else
        ((int32_t *)ids)[at] = (int32_t)id;
}

static struct pattern random_pattern(int wide) {
    static char dense[MOST_ROWS][MOST_COLUMNS];
    struct pattern pattern = {{0}, {0}, NULL, NULL, 0};
    for (int row = 0; row < num_rows; row++)
        for (int column = 0; column < num_columns; column++)
            pattern.entries += dense[row][column] = row % 3 != 1 && random_below(4) < 3;
    const size_t bytes = (size_t)pattern.entries * (wide ? 8 : 4);
    pattern.columns = malloc(bytes), pattern.rows = malloc(bytes);
    int64_t at = 0;
    for (int row = 0; row < num_rows; pattern.offsets[++row] = at)
        for (int column = 0; column < num_columns; column++)
            if (dense[row][column])
                put(pattern.columns, at++, column, wide);
    at = 0;
    for (int column = 0; column < num_columns; pattern.column_offsets[++column] = at)
        for (int row = 0; row < num_rows; row++)
            if (dense[row][column])
                put(pattern.rows, at++, row, wide);
    return pattern;
}

static int64_t id_at(const void *ids, int64_t at, int wide) {
    return wide ? ((const int64_t *)ids)[at] : ((const int32_t *)ids)[at];
}

static int far(double found, double wanted, double eps) {
    return !(fabs(found - wanted) <= eps * (1 + fabs(wanted)));
}

static int check(int32_t instruction_set, int32_t dtype, int64_t heads, int64_t dim, int wide) {
    const int32_t sums = sums_of(dtype);
    const double eps = dtype == GNNLOOM_BFLOAT16 ? 1.0 / 64 : 1e-4, slope = 0.25;
    const struct pattern pattern = random_pattern(wide);
    void *values = random_array(num_columns * heads * dim, dtype), *source = random_array(num_columns * heads, sums);
    void *target = random_array(num_rows * heads, sums), *output = random_array(num_rows * heads * dim, dtype);
    void *maximum = random_array(num_rows * heads, sums), *total = random_array(num_rows * heads, sums);
    void *weighted = random_array(num_rows * heads * dim, sums);
    struct gnnloom_attention given = {.offsets = pattern.offsets,
                                      .ids = pattern.columns,
                                      .values = values,
                                      .source = source,
                                      .target = target,
                                      .maximum = maximum,
                                      .total = total,
                                      .weighted = weighted,
                                      .num_entries = pattern.entries,
                                      .num_rows = num_rows,
                                      .heads = heads,
                                      .dim = dim,
                                      .slope = slope,
                                      .step = GNNLOOM_ATTEND,
                                      .dtype = dtype,
                                      .wide_ids = wide,
                                      .begins = 1};
    const int64_t bounds[] = {0, 1, num_rows}, column_bounds[] = {0, num_columns / 2, num_columns};
    int wrong = 0;
    /* The same entries twice, once as the first and once as the last ones: weights halve, and sums stay. */
    wrong |= !gnnloom_attend(&given, bounds, 2, instruction_set, NULL, 1);
    given.begins = 0, given.output = output;
    wrong |= !gnnloom_attend(&given, bounds, 2, instruction_set, NULL, 1);
    for (int64_t row = 0; row < num_rows; row++)
        for (int64_t at = 0; at < heads * dim; at++) {
            double sum = 0, weights = 0;
            for (int64_t entry = pattern.offsets[row]; entry < pattern.offsets[row + 1]; entry++) {
                const int64_t column = id_at(pattern.columns, entry, wide);
                const double score =
                    get(source, column * heads + at / dim, sums) + get(target, row * heads + at / dim, sums);
                const double weight = exp(score > 0 ? score : slope * score);
                weights += weight;
                sum += weight * get(values, column * heads * dim + at, dtype);
            }
            wrong |= far(get(output, row * heads * dim + at, dtype), weights > 0 ? sum / weights : 0, eps);
        }
    /* Gradients with given maxima and totals: 0 and 1. */
    void *rows = random_array(num_rows * 4 * heads, sums), *gradient = random_array(num_rows * heads * dim, dtype);
    void *of_values = random_array(num_columns * heads * dim, dtype),
         *of_source = random_array(num_columns * heads, sums);
    void *of_target = random_array(2 * num_rows * heads, sums);
    given.offsets = pattern.column_offsets, given.ids = pattern.rows, given.target = rows, given.gradient = gradient;
    given.of_values = of_values, given.of_source = of_source, given.of_target = of_target;
    given.step = GNNLOOM_COLUMNS;
    /* The sums of one row are added apart, after every few columns. */
    const int64_t hub = num_rows - 1;
    double *of_hub = malloc((size_t)(2 * heads) * sizeof *of_hub);
    given.hubs = &hub, given.num_hubs = 1, given.of_hubs = of_hub, given.hub_columns = 16;
    for (int64_t at = 0; at < num_rows * heads; at++)
        for (int64_t which = 1; which < 3; which++) {
            const int64_t place = (at / heads * 4 + which) * heads + at % heads;
            if (sums == GNNLOOM_FLOAT64)
                ((double *)rows)[place] = which == 1 ? 4 : 1;
            else
                ((float *)rows)[place] = which == 1 ? 4 : 1;
        }
    wrong |= !gnnloom_attend(&given, column_bounds, 2, instruction_set, NULL, 1);
    double *of_rows = calloc((size_t)(num_rows * heads), sizeof *of_rows);
    for (int64_t column = 0; column < num_columns; column++)
        for (int64_t head = 0; head < heads; head++) {
            double of_score = 0;
            for (int64_t entry = pattern.column_offsets[column]; entry < pattern.column_offsets[column + 1]; entry++) {
                const int64_t row = id_at(pattern.rows, entry, wide);
                const double score = get(source, column * heads + head, sums) + get(rows, row * 4 * heads + head, sums);
                double of_weight = -get(rows, (row * 4 + 3) * heads + head, sums);
                for (int64_t d = 0; d < dim; d++)
                    of_weight += get(values, (column * heads + head) * dim + d, dtype) *
                                 get(gradient, (row * heads + head) * dim + d, dtype);
                const double of_entry =
                    exp((score > 0 ? score : slope * score) - 4) * of_weight * (score > 0 ? 1 : slope);
                of_score += of_entry;
                of_rows[row * heads + head] += of_entry;
            }
            wrong |= far(get(of_source, column * heads + head, sums), of_score, 1e-3);
        }
    for (int64_t at = 0; at < num_rows * heads; at++) {
        double found = get(of_target, at, sums) + get(of_target, num_rows * heads + at, sums);
        if (at >= hub * heads) {
            wrong |= found != 0;
            found = of_hub[at - hub * heads] + of_hub[at - hub * heads + heads];
        }
        wrong |= far(found, of_rows[at], 1e-3);
    }
    /* Scores of heads, and what they give back. */
    const int64_t chunk[] = {0, 1, (num_columns + 63) / 64};
    void *vector = random_array(heads * dim, sums), *partial = random_array(chunk[2] * 2 * heads * dim, sums);
    struct gnnloom_heads over = {.first = values,
                                 .second = vector,
                                 .other = vector,
                                 .sums = of_source,
                                 .other_sums = of_target,
                                 .gradient = of_values,
                                 .partial = partial,
                                 .num_rows = num_columns,
                                 .num_others = num_rows,
                                 .heads = heads,
                                 .dim = dim,
                                 .chunk = 64,
                                 .step = GNNLOOM_DOTS,
                                 .dtype = dtype,
                                 .vectors = 1};
    gnnloom_heads(&over, chunk, 2, instruction_set, NULL, 1);
    for (int64_t at = 0; at < num_columns * heads; at++) {
        double dot = 0;
        for (int64_t d = 0; d < dim; d++)
            dot += get(values, at * dim + d, dtype) * get(vector, at % heads * dim + d, sums);
        wrong |= far(get(of_source, at, sums), dot, 1e-3);
    }
    over.step = GNNLOOM_SPREAD;
    gnnloom_heads(&over, chunk, 2, instruction_set, NULL, 1);
    void *arrays[] = {pattern.columns, pattern.rows, values,   source, target,   output,
                      maximum,         total,        weighted, rows,   gradient, of_values,
                      of_source,       of_target,    of_rows,  vector, partial,  of_hub};
    for (size_t at = 0; at < sizeof arrays / sizeof *arrays; at++)
        free(arrays[at]);
    return wrong;
}

/* The LeakyReLU, and its derivative. */
static double slope_at(double score, double slope) {
    return score > 0 ? 1 : slope;
}

/* The score of GATv2 of a column and a row, for one head. */
static double score_of(const void *values, const void *target, const void *vector, int64_t column, int64_t row,
                       int64_t head, const struct gnnloom_attention *given) {
    double score = 0;
    for (int64_t d = 0; d < given->dim; d++) {
        const double sum = get(values, (column * given->heads + head) * given->dim + d, given->dtype) +
                           get(target, (row * given->heads + head) * given->dim + d, given->dtype);
        score += get(vector, head * given->dim + d, sums_of(given->dtype)) * sum * slope_at(sum, given->slope);
    }
    return score;
}

/* The same for the scores of GATv2. */
static int check_v2(int32_t instruction_set, int32_t dtype, int64_t heads, int64_t dim, int wide) {
    const int32_t sums = sums_of(dtype);
    /* Scores are sums over the features, whose rounding errors the exponential function multiplies. */
    const double eps = dtype == GNNLOOM_BFLOAT16 ? 1.0 / 64 : 1e-3, slope = 0.25;
    const struct pattern pattern = random_pattern(wide);
    void *values = random_array(num_columns * heads * dim, dtype), *vector = random_array(heads * dim, sums);
    void *target = random_array(num_rows * heads * dim, dtype), *output = random_array(num_rows * heads * dim, dtype);
    void *maximum = random_array(num_rows * heads, sums), *total = random_array(num_rows * heads, sums);
    void *weighted = random_array(num_rows * heads * dim, sums), *numbers = random_array(num_rows * 3 * heads, sums);
    void *gradient = random_array(num_rows * heads * dim, dtype),
         *of_values = random_array(num_columns * heads * dim, dtype);
    void *of_target = random_array(num_rows * heads * dim, dtype);
    double *of_vector = malloc((size_t)(2 * heads * dim) * sizeof *of_vector);
    double *wanted_values = calloc((size_t)(num_columns * heads * dim), sizeof *wanted_values);
    double *wanted_target = calloc((size_t)(num_rows * heads * dim), sizeof *wanted_target);
    double *wanted_vector = calloc((size_t)(heads * dim), sizeof *wanted_vector);
    struct gnnloom_attention given = {.offsets = pattern.offsets,
                                      .ids = pattern.columns,
                                      .values = values,
                                      .source = vector,
                                      .target = target,
                                      .row_numbers = numbers,
                                      .maximum = maximum,
                                      .total = total,
                                      .weighted = weighted,
                                      .gradient = gradient,
                                      .of_values = of_values,
                                      .of_source = of_vector,
                                      .of_target = of_target,
                                      .num_entries = pattern.entries,
                                      .num_rows = num_rows,
                                      .heads = heads,
                                      .dim = dim,
                                      .slope = slope,
                                      .step = GNNLOOM_ATTEND_V2,
                                      .dtype = dtype,
                                      .wide_ids = wide,
                                      .begins = 1};
    const int64_t bounds[] = {0, 1, num_rows}, column_bounds[] = {0, num_columns / 2, num_columns};
    int wrong = 0;
    /* The same entries twice, once as the first and once as the last ones: weights halve, and sums stay. */
    wrong |= !gnnloom_attend(&given, bounds, 2, instruction_set, NULL, 1);
    given.begins = 0, given.output = output;
    wrong |= !gnnloom_attend(&given, bounds, 2, instruction_set, NULL, 1);
    double *scores = malloc((size_t)pattern.entries * sizeof *scores);
    for (int64_t row = 0; row < num_rows; row++)
        for (int64_t head = 0; head < heads; head++) {
            const int64_t begin = pattern.offsets[row], end = pattern.offsets[row + 1];
            double highest = 0, weights = 0;
            for (int64_t entry = begin; entry < end; entry++) {
                const int64_t column = id_at(pattern.columns, entry, wide);
                scores[entry] = score_of(values, target, vector, column, row, head, &given);
                highest = entry == begin || scores[entry] > highest ? scores[entry] : highest;
            }
            for (int64_t entry = begin; entry < end; entry++)
                weights += scores[entry] = exp(scores[entry] - highest);
            for (int64_t d = 0; d < dim; d++) {
                double sum = 0;
                for (int64_t entry = begin; entry < end; entry++) {
                    const int64_t column = id_at(pattern.columns, entry, wide);
                    sum += scores[entry] * get(values, (column * heads + head) * dim + d, dtype);
                }
                wrong |= far(get(output, (row * heads + head) * dim + d, dtype), end > begin ? sum / weights : 0, eps);
            }
        }
    /* Gradients with the maxima that were found, but other totals and sums along the features. */
    for (int64_t at = 0; at < num_rows * heads; at++) {
        const int64_t place = at / heads * 3 * heads + at % heads;
        if (sums == GNNLOOM_FLOAT64)
            ((double *)numbers)[place] = ((double *)maximum)[at];
        else
            ((float *)numbers)[place] = ((float *)maximum)[at];
    }
    given.step = GNNLOOM_ROWS_V2;
    wrong |= !gnnloom_attend(&given, bounds, 2, instruction_set, NULL, 1);
    for (int64_t at = 0; at < heads * dim; at++)
        wanted_vector[at] = -(of_vector[at] + of_vector[heads * dim + at]);
    given.step = GNNLOOM_COLUMNS_V2, given.offsets = pattern.column_offsets, given.ids = pattern.rows;
    wrong |= !gnnloom_attend(&given, column_bounds, 2, instruction_set, NULL, 1);
    /* Both passes give the gradient of the vectors in part. */
    for (int64_t at = 0; at < heads * dim; at++)
        wanted_vector[at] -= of_vector[at] + of_vector[heads * dim + at];
    for (int64_t column = 0; column < num_columns; column++)
        for (int64_t entry = pattern.column_offsets[column]; entry < pattern.column_offsets[column + 1]; entry++)
            for (int64_t head = 0; head < heads; head++) {
                const int64_t row = id_at(pattern.rows, entry, wide), at = row * 3 * heads + head;
                const int64_t one = (column * heads + head) * dim, other = (row * heads + head) * dim;
                const double score = score_of(values, target, vector, column, row, head, &given);
                const double weight = exp(score - get(numbers, at, sums)) * get(numbers, at + heads, sums);
                double of_weight = -get(numbers, at + 2 * heads, sums);
                for (int64_t d = 0; d < dim; d++)
                    of_weight += get(values, one + d, dtype) * get(gradient, other + d, dtype);
                for (int64_t d = 0; d < dim; d++) {
                    const double sum = get(values, one + d, dtype) + get(target, other + d, dtype);
                    const double part = weight * of_weight * slope_at(sum, slope);
                    wanted_vector[head * dim + d] += part * sum;
                    wanted_target[other + d] += part * get(vector, head * dim + d, sums);
                    wanted_values[one + d] +=
                        weight * get(gradient, other + d, dtype) + part * get(vector, head * dim + d, sums);
                }
            }
    double largest = 1;
    for (int64_t at = 0; at < num_columns * heads * dim; at++)
        largest = fmax(largest, fabs(wanted_values[at]));
    for (int64_t at = 0; at < num_rows * heads * dim; at++)
        largest = fmax(largest, fabs(wanted_target[at]));
    for (int64_t at = 0; at < num_columns * heads * dim; at++)
        wrong |= far(get(of_values, at, dtype) / largest, wanted_values[at] / largest, eps);
    for (int64_t at = 0; at < num_rows * heads * dim; at++)
        wrong |= far(get(of_target, at, dtype) / largest, wanted_target[at] / largest, eps);
    for (int64_t at = 0; at < heads * dim; at++)
        wrong |= far(wanted_vector[at] / largest, 0, 10 * eps);
    void *arrays[] = {pattern.columns, pattern.rows, values,   vector,        target,        output,
                      maximum,         total,        weighted, numbers,       gradient,      of_values,
                      of_target,       of_vector,    scores,   wanted_values, wanted_target, wanted_vector};
    for (size_t at = 0; at < sizeof arrays / sizeof *arrays; at++)
        free(arrays[at]);
    return wrong;
}

static int check_both(int32_t instruction_set, int32_t dtype, int64_t heads, int64_t dim, int wide) {
    return check(instruction_set, dtype, heads, dim, wide) | check_v2(instruction_set, dtype, heads, dim, wide);
}

int main(void) {
    static const int64_t widths[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 32, 47, 64, 70, 130};
    int checks = 0, failures = 0;
    for (int32_t set = gnnloom_best_instruction_set(); set <= 2; set++)
        for (int32_t dtype = GNNLOOM_FLOAT32; dtype <= GNNLOOM_BFLOAT16; dtype++)
            for (int64_t heads = 1; heads <= 10; heads++)
                for (size_t width = 0; width < sizeof widths / sizeof *widths; width++, checks++) {
                    num_rows = 7, num_columns = 90;
                    int wrong = check_both(set, dtype, heads, widths[width], checks % 2);
                    if (checks % 7 == 0) {
                        num_rows = 3, num_columns = MOST_COLUMNS;
                        wrong |= check_both(set, dtype, heads, widths[width], checks % 2);
                        num_rows = MOST_ROWS, num_columns = 3;
                        wrong |= check_both(set, dtype, heads, widths[width], checks % 2);
                    }
                    if (wrong) {
                        failures++;
                        printf("instruction set %d, dtype %d, %d heads of %d: wrong\n", (int)set, (int)dtype,
                               (int)heads, (int)widths[width]);
                    }
                }
    printf("%d patterns, %d wrong\n", checks, failures);
    return failures || checks == 0;
}
