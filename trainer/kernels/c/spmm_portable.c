/* Vectors of 16 bytes, which every 64-bit processor has: SSE2 on x86, NEON on ARM. */
#include "attention.h"
#include "rectify.h"

#define WIDEST 16
/* x86 processors without AVX2 are from before 2013: fewer sizes for them, which take half as long to compile. */
#if GNNLOOM_X86
#define MOST_SUMS 4
#define MOST_DOUBLES 2
#define MOST_PAIRS 2
#define MOST_HEADS 1
#else
#define MOST_SUMS 8
#define MOST_DOUBLES 4
#define MOST_PAIRS 4
#define MOST_HEADS 4
#endif
#define ENTRY gnnloom_spmm_portable
#include "spmm_types.h"

#define ROWS_ENTRY gnnloom_rows_portable
#include "rectify_types.h"

#define ATTEND_ENTRY gnnloom_attend_portable
#define HEADS_ENTRY gnnloom_heads_portable
#include "attention_types.h"
