"""One rank's products of ``broadcast`` on more and more ranks, whose blocks of the adjacency have ever fewer entries.

Vertices of degree 16 with random neighbors, width 128, one thread, no messages: the rank multiplies its rows with the
rows of one rank after the other. The memory of the matrix is proportional to its entries. Two tables:

* every rank has as many vertices, so the graph grows with the ranks and a rank's entries stay the same. From 16 ranks
  on, most rows of a block have no entry, and those that have one usually have no other: each entry then reads and
  writes a row of the output, where four shared it before.
* the graph stays the same. The blocks of 1024 ranks have a few entries each, and the constant time of a call dominates:
  it is measured by itself, with a matrix of one entry, and subtracted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

import numpy as np

_RANKS, _DEGREE, _WIDTH = (4, 64, 256, 1024), 16, 128
_CALLS = 2000


@dataclass(frozen=True)
class _Figures:
    """Entries of the rank, processor seconds of its products, and bytes of its matrix."""

    entries: int
    seconds: float
    num_bytes: int


def report_hypersparse(num_vertices: int, repeats: int) -> None:
    """Print the processor time and the memory of the matrix per entry, for every number of ranks.

    Args:
        num_vertices: of the graph that stays the same; in the one that grows, of four ranks.
    """
    call = _seconds_of_a_call()
    print(f"\none rank of broadcast, vertices of degree {_DEGREE}, width {_WIDTH}, one thread")
    print(f"a call takes {call * 1e6:.1f} us\nRESULT spmm_hypersparse_call {call * 1e6:.3g} us")
    for name, growing in (("own", True), ("share", False)):
        print(f"{num_vertices // 4:,} vertices on each rank" if growing else f"{num_vertices:,} vertices on all ranks")
        print(f"{'ranks':>8}{'entries':>12}{'ns each':>10}{'no calls':>10}{'bytes':>8}{'ns x':>8}{'no calls':>10}")
        base = None
        for ranks in _RANKS:
            found = _measure(num_vertices // 4 if growing else num_vertices // ranks, ranks, repeats)
            each = found.seconds / found.entries * 1e9
            alone = (found.seconds - ranks * call) / found.entries * 1e9
            base = base or (each, alone)
            ratios, size = (each / base[0], alone / base[1]), found.num_bytes / found.entries
            print(f"{ranks:8}{found.entries:12,}{each:10.2f}{alone:10.2f}{size:8.2f}{ratios[0]:8.2f}{ratios[1]:10.2f}")
            print(f"RESULT spmm_hypersparse_{name}_{ranks}_over_4 {ratios[0]:.3g} x")
            print(f"RESULT spmm_hypersparse_{name}_{ranks}_without_calls_over_4 {ratios[1]:.3g} x")
            print(f"RESULT spmm_hypersparse_{name}_{ranks}_bytes {size:.4g} B")


def _measure(rows: int, ranks: int, repeats: int) -> _Figures:
    import torch

    from gnnloom.storage import CSR
    from gnnloom.trainer.kernels.dispatch import Threads, Workspace, sparse_product
    from gnnloom.trainer.kernels.sparse_rows import listed_rows

    threads, space = Threads(1), Workspace()
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
    # Of the workspace like those of a training: in its large pages, fewer rows miss the TLB.
    dense, out = (space.zeros((rows, _WIDTH), torch.float32) for _ in range(2))
    ones, found = torch.ones(rows), []
    for _ in range(repeats):
        started = time.process_time()
        for number, product in enumerate(products):
            product.multiply(dense, out, ones, accumulate=number > 0)
        found.append(time.process_time() - started)
    return _Figures(columns.size, median(found), num_bytes)


def _seconds_of_a_call() -> float:
    """Processor seconds of a product with one entry."""
    import torch

    from gnnloom.storage import CSR
    from gnnloom.trainer.kernels.dispatch import Threads, sparse_product

    matrix = CSR(0, np.array([0, 1, 1]), np.zeros(1, np.int32), None, 1)
    product = sparse_product(matrix, Threads(1), torch.float32)
    dense, out, ones = torch.ones(1, _WIDTH), torch.zeros(2, _WIDTH), torch.ones(2)
    started = time.process_time()
    for _ in range(_CALLS):
        product.multiply(dense, out, ones, accumulate=True)
    return (time.process_time() - started) / _CALLS
