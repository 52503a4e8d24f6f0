"""One rank's products of ``broadcast`` on more and more ranks, whose blocks of the adjacency have ever fewer entries.

Vertices of degree 16 with random neighbors, width 128, one thread, no messages: the rank multiplies its rows with the
rows of the other ranks, of as many at a time as ``broadcast`` does. The memory of the matrix is proportional to its
entries. Two tables:

* every rank has as many vertices, so the graph grows with the ranks and a rank's entries stay the same. A block of the
  features is too large to wait for others. From 16 ranks on, most rows of a block have no entry, and those that have
  one usually have no other: each entry then reads and writes a row of the output, where four shared it before.
* the graph stays the same. The blocks of 1024 ranks have a few entries each, so that many of them are multiplied by one
  call.

The bytes that move are those of the rows that an entry reads, of the rows of the output that a call reads and writes,
and of the matrix. Their rate shows what the memory allows: where it is as high as on 4 ranks, no kernel that is given
these blocks one after the other is faster. The constant time of a call is measured by itself, with a matrix of one
entry, and subtracted in one column.
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
    """Entries of the rank, calls and processor seconds of its products, bytes of its matrix, and bytes that move."""

    entries: int
    calls: int
    seconds: float
    num_bytes: int
    moved: int


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
        heads = f"{'ranks':>8}{'entries':>12}{'calls':>7}{'ns each':>10}{'no calls':>10}{'bytes':>8}{'moved':>8}"
        print(heads + f"{'GB/s':>8}{'ns x':>8}{'no calls':>10}{'moved x':>9}")
        base = None
        for ranks in _RANKS:
            found = _measure(num_vertices // 4 if growing else num_vertices // ranks, ranks, repeats)
            each = found.seconds / found.entries * 1e9
            alone = (found.seconds - found.calls * call) / found.entries * 1e9
            size, moved = (number / found.entries for number in (found.num_bytes, found.moved))
            base = base or (each, alone, moved)
            ratios = [value / first for value, first in zip((each, alone, moved), base, strict=True)]
            line = f"{ranks:8}{found.entries:12,}{found.calls:7}{each:10.2f}{alone:10.2f}{size:8.2f}{moved:8.0f}"
            print(line + f"{moved / alone:8.1f}{ratios[0]:8.2f}{ratios[1]:10.2f}{ratios[2]:9.2f}")
            print(f"RESULT spmm_hypersparse_{name}_{ranks}_over_4 {ratios[0]:.3g} x")
            print(f"RESULT spmm_hypersparse_{name}_{ranks}_without_calls_over_4 {ratios[1]:.3g} x")
            print(f"RESULT spmm_hypersparse_{name}_{ranks}_moved_over_4 {ratios[2]:.3g} x")
            print(f"RESULT spmm_hypersparse_{name}_{ranks}_bytes {size:.4g} B")


def _measure(rows: int, ranks: int, repeats: int) -> _Figures:
    import torch

    from gnnloom.storage import CSR
    from gnnloom.trainer.algorithms.broadcast import blocks_together
    from gnnloom.trainer.kernels.dispatch import sparse_product
    from gnnloom.trainer.kernels.sparse_rows import listed_rows
    from gnnloom.trainer.place.place import Place

    together = blocks_together(ranks * rows, ranks, 1, _WIDTH, 4)
    width = together * rows
    place = Place()
    columns = np.random.default_rng(ranks).integers(0, ranks * rows, (rows, _DEGREE))
    order = np.argsort(columns // width, axis=None, kind="stable")
    owner = (columns // width).ravel()[order]
    products, num_bytes, moved, calls = [], 0, 0, ranks // together
    for block, chosen in enumerate(np.split(order, np.searchsorted(owner, np.arange(1, calls)))):
        counts = np.bincount(chosen // _DEGREE, minlength=rows)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        matrix = CSR(0, indptr, (columns.ravel()[chosen] - block * width).astype(np.int32), None, width)
        listed = listed_rows(matrix)
        target = 0 if listed.target is None else listed.target.nbytes
        # Both ends of the rows are views of one array.
        num_bytes += listed.indices.nbytes + 8 * (listed.num_listed + 1) + target
        moved += 4 * _WIDTH * (matrix.nnz + (1 if block == 0 else 2) * int(np.count_nonzero(counts)))
        products.append(sparse_product(matrix, place))
    # Of the workspace like those of a training: in its large pages, fewer rows miss the TLB.
    dense, out = (place.zeros((number, _WIDTH), torch.float32) for number in (width, rows))
    ones, found = torch.ones(rows), []
    for _ in range(repeats):
        started = time.process_time()
        for number, product in enumerate(products):
            product.multiply(dense, out, ones, accumulate=number > 0)
        found.append(time.process_time() - started)
    return _Figures(columns.size, calls, median(found), num_bytes, moved + num_bytes)


def _seconds_of_a_call() -> float:
    """Processor seconds of a product with one entry."""
    import torch

    from gnnloom.storage import CSR
    from gnnloom.trainer.kernels.dispatch import sparse_product
    from gnnloom.trainer.place.place import Place

    matrix = CSR(0, np.array([0, 1, 1]), np.zeros(1, np.int32), None, 1)
    product = sparse_product(matrix, Place())
    dense, out, ones = torch.ones(1, _WIDTH), torch.zeros(2, _WIDTH), torch.ones(2)
    started = time.process_time()
    for _ in range(_CALLS):
        product.multiply(dense, out, ones, accumulate=True)
    return (time.process_time() - started) / _CALLS
