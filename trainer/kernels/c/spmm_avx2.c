/* Vectors of 32 bytes: x86 processors since 2013. */
#include "attention.h"
#include "rectify.h"

#if GNNLOOM_X86
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif
#include <immintrin.h>

#define WIDEST 32
#define MOST_SUMS 8
#define MOST_DOUBLES 4
#define MOST_PAIRS 4
#define MOST_HEADS 4
#define STREAM(to, vector) _mm256_stream_si256((__m256i *)(to), (__m256i)(vector))
#define FENCE _mm_sfence
#define ENTRY gnnloom_spmm_avx2
#include "spmm_types.h"

#define ROWS_ENTRY gnnloom_rows_avx2
#include "rectify_types.h"

#define ATTEND_ENTRY gnnloom_attend_avx2
#define HEADS_ENTRY gnnloom_heads_avx2
#include "attention_types.h"

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
