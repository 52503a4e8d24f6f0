/* The same kernel, compiled for several instruction sets: rows `start` to `stop` of the list are computed. */
#ifndef GNNLOOM_SPMM_H
#define GNNLOOM_SPMM_H

#include "product.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define GNNLOOM_X86 1
#else
#define GNNLOOM_X86 0
#endif

void gnnloom_spmm_portable(const struct gnnloom_product *product, int64_t start, int64_t stop);
#if GNNLOOM_X86
void gnnloom_spmm_avx2(const struct gnnloom_product *product, int64_t start, int64_t stop);
void gnnloom_spmm_avx512(const struct gnnloom_product *product, int64_t start, int64_t stop);
#endif

#endif
