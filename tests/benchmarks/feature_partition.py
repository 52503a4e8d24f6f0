"""Propagation over a subgraph by slices of the features against the kernel that divides rows, in bench_sampling.

Zeng et al. (IPDPS 2019), section V, algorithm 6: features are cut into Qf = max(p, w n f / cache) slices of columns,
with w bytes per number (8 in the paper, 4 here), so that the part of the features that a processor reads at random fits
into its cache.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch

from gnnloom.storage.matrix.csr import CSR
from gnnloom.trainer.kernels.dispatch import sparse_product
from gnnloom.trainer.place.place import Place

WIDTHS = (64, 256, 1024)
#: Where Linux says how large the second-level cache is, and what is assumed elsewhere.
CACHE, USUAL = Path("/sys/devices/system/cpu/cpu0/cache/index2/size"), "1024K"
ROUNDS, REPEATS = 9, 3
#: Bytes of a number.
WORD = 4


def report_propagation(name: str, matrix: CSR) -> None:
    """Print processor seconds of both ways on one thread, over several widths."""
    cache = _cache_bytes()
    product, n = sparse_product(matrix, Place()), matrix.num_rows
    print(f"\n{name}: a product of {n:,} vertices, {matrix.nnz:,} nonzeros; second-level cache {cache >> 10} KiB")
    print(f"{'width':>8}{'slices':>8}{'by rows ms':>14}{'by features ms':>16}{'ratio':>8}")
    ones = torch.ones(n)
    for width in WIDTHS:
        dense, out = torch.rand(n, width), torch.empty(n, width)
        count = min(width, max(1, -(-WORD * n * width // cache)))
        bounds = [part * width // count for part in range(count + 1)]
        # Each slice has memory of its own, as a matrix of its columns.
        slices = [dense[:, a:b].contiguous() for a, b in pairwise(bounds)]
        parts = [torch.empty_like(each) for each in slices]

        def by_rows(dense: torch.Tensor = dense, out: torch.Tensor = out) -> None:
            product.multiply(dense, out, ones)

        def by_features(slices: list[torch.Tensor] = slices, parts: list[torch.Tensor] = parts) -> None:
            for each, part in zip(slices, parts, strict=True):
                product.multiply(each, part, ones)

        rows, features = _alternate(by_rows, by_features)
        if not torch.equal(torch.cat(parts, 1), out):
            raise SystemExit("the products differ")
        print(f"{width:8}{count:8}{1e3 * rows:14.3f}{1e3 * features:16.3f}{features / rows:8.2f}")
        print(f"RESULT propagation_{name}_{width}_by_features_over_by_rows {features / rows:.3g} x")


def _cache_bytes() -> int:
    text = CACHE.read_text().strip() if CACHE.exists() else USUAL
    return int(text.rstrip("KM")) << (20 if text.endswith("M") else 10)


def _alternate(*sides: Callable[[], None]) -> list[float]:
    """Median processor seconds of each side, which take turns."""
    found: list[list[float]] = [[] for _ in sides]
    for _ in range(ROUNDS):
        for side, seconds in zip(sides, found, strict=True):
            side()
            start = time.process_time()
            for _ in range(REPEATS):
                side()
            seconds.append((time.process_time() - start) / REPEATS)
    return [statistics.median(seconds) for seconds in found]
