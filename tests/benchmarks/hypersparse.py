"""One rank's products of ``broadcast`` on more and more ranks, whose blocks of the adjacency have ever fewer entries.

n vertices of degree 16 with random neighbors, width 128, one thread, no messages: the rank multiplies its n / P rows
with one block of n / P columns after the other. Most rows of a block are empty from P = 64 on. The memory of the matrix
is proportional to its entries. The time of an entry grows all the same: its row of the output has no other entry in the
block, and the call of a product takes about ten microseconds, as long as thousands of entries.
"""

from __future__ import annotations

import time
from statistics import median

import numpy as np

_RANKS, _DEGREE, _WIDTH = (4, 64, 256, 1024), 16, 128


def report_hypersparse(num_vertices: int, repeats: int) -> None:
    """Print the processor time and the memory of the matrix per entry, for every number of ranks."""
    print(f"\none rank of broadcast, {num_vertices:,} vertices of degree {_DEGREE}, width {_WIDTH}, one thread")
    print(f"{'ranks':>8}{'entries':>12}{'ns each':>10}{'bytes each':>12}{'ns x':>8}")
    base = 0.0
    for ranks in _RANKS:
        entries, seconds, num_bytes = _measure(num_vertices, ranks, repeats)
        each = seconds / entries * 1e9
        base = base or each
        print(f"{ranks:8}{entries:12,}{each:10.2f}{num_bytes / entries:12.2f}{each / base:8.2f}")
        print(f"RESULT spmm_hypersparse_{ranks}_entry {each:.4g} ns")
        print(f"RESULT spmm_hypersparse_{ranks}_over_4 {each / base:.3g} x")
        print(f"RESULT spmm_hypersparse_{ranks}_bytes {num_bytes / entries:.4g} B")


def _measure(num_vertices: int, ranks: int, repeats: int) -> tuple[int, float, int]:
    """Entries of the rank, processor seconds of its product, and bytes of its matrix."""
    import torch

    from gnnloom.storage import CSR
    from gnnloom.trainer.kernels.dispatch import Threads, sparse_product
    from gnnloom.trainer.kernels.sparse_rows import listed_rows

    rows, threads = num_vertices // ranks, Threads(1)
    columns = np.random.default_rng(ranks).integers(0, ranks * rows, (rows, _DEGREE))
    order = np.argsort(columns // rows, axis=None, kind="stable")
    owner = (columns // rows).ravel()[order]
    products, num_bytes = [], 0
    for block, chosen in enumerate(np.split(order, np.searchsorted(owner, np.arange(1, ranks)))):
        counts = np.bincount(chosen // _DEGREE, minlength=rows)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        matrix = CSR(0, indptr, (columns.ravel()[chosen] - block * rows).astype(np.int32), None, rows)
        listed = listed_rows(matrix)
        target = 0 if listed.target is None else listed.target.nbytes
        num_bytes += listed.indices.nbytes + listed.begin.nbytes + listed.end.nbytes + target
        products.append(sparse_product(matrix, threads, torch.float32))
    dense, out, ones = torch.ones(rows, _WIDTH), torch.zeros(rows, _WIDTH), torch.ones(rows)
    found = []
    for _ in range(repeats):
        started = time.process_time()
        for number, product in enumerate(products):
            product.multiply(dense, out, ones, accumulate=number > 0)
        found.append(time.process_time() - started)
    return columns.size, median(found), num_bytes
