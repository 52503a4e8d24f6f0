"""The balance of grid shards and the cost of a keyed permutation: two sections of bench_algorithms.

Reports max/mean nonzeros of 8 x 8 blocks, as Table 3 of Plexus (SC 2025) does: there europe_osm has 7.70 in its own
order, 3.24 with a single and 1.001 with a double permutation.  Compares a permutation's cost per id with a look-up in
a table of random order, which takes 8 bytes per vertex on every worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import gnnloom
from gnnloom.storage.matrix.permutation import KeyedPermutation

GRID = (8, 8)
PERMUTATIONS = ("none", "single", "double")


def report_balance(catalog: Path, data: Path, side: int) -> None:
    """Print max/mean of a lattice with loops, and of soc-Slashdot0902 if its file exists."""
    graphs = [gnnloom.generate(f"lattice-{side}", "lattice", catalog=catalog, workers=0, size=(side, side))]
    slashdot = data / "soc-Slashdot0902.txt.gz"
    if slashdot.exists():
        graphs.append(gnnloom.ingest("slashdot", slashdot, catalog=catalog, workers=0, ids="compact"))
    print(
        f"\nMax/mean nonzeros of {GRID[0]} x {GRID[1]} blocks\n{'':12}"
        + "".join(f"{name:>10}" for name in PERMUTATIONS)
    )
    lines = []
    for dataset in graphs:
        found = [_balance(dataset, permutation) for permutation in PERMUTATIONS]
        name = dataset.name.split("-", maxsplit=1)[0]
        print(f"{name:12}" + "".join(f"{figure:10.4f}" for figure in found))
        pairs = zip(PERMUTATIONS, found, strict=True)
        lines += [f"RESULT balance_{name}_{permutation} {figure:.4g} x" for permutation, figure in pairs]
    print("\n".join(lines), flush=True)


def _balance(dataset: gnnloom.Dataset, permutation: str) -> float:
    shards = gnnloom.shard(dataset, grid=GRID, permutation=permutation, workers=0)
    return float(max(shards.artifact.facts["balance"].values()))


def report_permutation(size: int) -> None:
    """Print nanoseconds per id for random ids below ``size``."""
    permutation, rng = KeyedPermutation(size, 7), np.random.default_rng(0)
    ids, table = rng.integers(0, size, size, dtype=np.int64), rng.permutation(size)
    ways = {"forward": permutation.forward, "inverse": permutation.inverse, "table": lambda chosen: table[chosen]}
    permutation.forward(ids[:8]), permutation.inverse(ids[:8])  # compiles
    cost = {name: _seconds(way, ids) / size * 1e9 for name, way in ways.items()}
    print(f"\nPermutation of {size:,} ids, ns per id, one thread")
    for name, figure in cost.items():
        print(f"{name:12}{figure:10.2f}")
    lines = [f"RESULT permutation_{name} {figure:.3g} ns" for name, figure in cost.items()]
    print("\n".join([*lines, f"RESULT permutation_over_table {cost['forward'] / cost['table']:.3g} x"]), flush=True)


def _seconds(way: Callable[[NDArray[np.int64]], NDArray[np.int64]], ids: NDArray[np.int64]) -> float:
    found = []
    for _ in range(3):
        started = time.process_time()
        way(ids)
        found.append(time.process_time() - started)
    return min(found)
