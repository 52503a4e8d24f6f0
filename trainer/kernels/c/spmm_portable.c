/* Vectors of 16 bytes, which every 64-bit processor has: SSE2 on x86, NEON on ARM. */
#include "spmm.h"

#define WIDEST 16
#define MOST_SUMS 8
#define MOST_PAIRS 4
#define ENTRY gnnloom_spmm_portable
#include "spmm_types.h"
