/* Vectors of 64 bytes, and 32 registers of them. */
#include "attention.h"
#include "rectify.h"

#if GNNLOOM_X86
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
#endif
#include <immintrin.h>

#define WIDEST 64
#define MOST_SUMS 8
#define MOST_DOUBLES 4
#define MOST_PAIRS 8
#define MOST_HEADS 8
#define STREAM(to, vector) _mm512_stream_si512((__m512i *)(to), (__m512i)(vector))
#define FENCE _mm_sfence
#define ENTRY gnnloom_spmm_avx512
#include "spmm_types.h"

#define ROWS_ENTRY gnnloom_rows_avx512
#include "rectify_types.h"

#define ATTEND_ENTRY gnnloom_attend_avx512
#define HEADS_ENTRY gnnloom_heads_avx512
#include "attention_types.h"

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
