/* Included once for each instruction set, without a guard, after spmm_types.h: instantiates the passes for every type.
 *
 * ROWS_ENTRY   name of the function that this file defines
 */
/* SplitMix64's step and finalizer (Steele, Lea, Flood, OOPSLA 2014). */
INLINE uint64_t mix64(uint64_t value) {
    value += 0x9E3779B97F4A7C15u;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
}

/* Two rounds of a 32-bit finalizer with a key between them. */
INLINE uint32_t mix32(uint32_t value, uint32_t key) {
    value = (value ^ (value >> 16)) * 0x7FEB352Du;
    value = (value ^ (value >> 15)) * 0x846CA68Bu;
    value = (value ^ (value >> 16)) ^ key;
    value = (value ^ (value >> 15)) * 0x7FEB352Du;
    value = (value ^ (value >> 16)) * 0x846CA68Bu;
    return value ^ (value >> 15);
}

/* The nearest bfloat16 of a float32 by its bits, ties to even. */
INLINE uint16_t narrowed(uint32_t bits) {
    const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded);
}

#define TEMPLATE "rectify_kernel.h"
#include "each_type.h"

void ROWS_ENTRY(const struct gnnloom_rows *rows, int64_t start, int64_t stop) {
    if (rows->dtype == GNNLOOM_FLOAT32)
        rows_float32_(rows, start, stop);
    else if (rows->dtype == GNNLOOM_FLOAT64)
        rows_float64_(rows, start, stop);
    else
        rows_bfloat16_(rows, start, stop);
}
