/* Includes TEMPLATE once for each type of numbers, without a guard, with
 *
 * STORED       type of the numbers in memory
 * SUM          type of the sums
 * SUM_BYTES    bytes of a sum
 * BFLOAT16     defined if STORED holds the bits of bfloat16
 * TYPE(name)   the name with the type
 */
#define STORED float
#define SUM float
#define SUM_BYTES 4
#define TYPE(name) name##_float32_
#include TEMPLATE
#undef STORED
#undef SUM
#undef SUM_BYTES
#undef TYPE

#define STORED double
#define SUM double
#define SUM_BYTES 8
#define TYPE(name) name##_float64_
#include TEMPLATE
#undef STORED
#undef SUM
#undef SUM_BYTES
#undef TYPE

#define STORED uint16_t
#define SUM float
#define SUM_BYTES 4
#define BFLOAT16 1
#define TYPE(name) name##_bfloat16_
#include TEMPLATE
#undef STORED
#undef SUM
#undef SUM_BYTES
#undef BFLOAT16
#undef TYPE

#undef TEMPLATE
