"""Samplers on an undirected R-MAT graph, edge factor 16, one process and one thread.

    python tests/benchmarks/bench_sampling.py [--scale small|full] [--folder FOLDER]

Frontier sampling (8000 vertices, 1000 of them in the frontier) against straightforward samplers: one draws from all
weights of the frontier by NumPy's Generator.choice, one scans them in compiled code. Subgraphs by random walks, and
batches of sampled neighbors (1024 seeds, fan-outs 15, 10, 5, with the 64 features of every vertex), against PyTorch
Geometric's loaders, if torch-sparse is installed. The sides of a comparison take turns; figures are medians of
processor seconds. Prints tables, then lines ``RESULT name value unit``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sampling_peers import choice_frontier, pyg_neighbor, pyg_walks, scan_frontier, why_no_pyg

from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.whole_graph import WholeGraph, map_whole_graph
from gnnloom.storage.format.mapped_copy import copy_path
from gnnloom.storage.sampling.edge import EdgeSampler
from gnnloom.storage.sampling.frontier import FrontierSampler
from gnnloom.storage.sampling.neighbor import NeighborSampler
from gnnloom.storage.sampling.vertex import VertexSampler
from gnnloom.storage.sampling.walk import WalkSampler

SCALES = {"small": (14, 3), "full": (20, 9)}
SIZE, FRONTIER, WALK = 8000, 1000, 4
FANOUTS, BATCH, FEATURES = [15, 10, 5], 1024, 64

Measured = Mapping[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--folder", type=Path, help="folder for temporary files [default: the system's]")
    options = parser.parse_args()
    scale, rounds = SCALES[options.scale]
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-sampling-") as folder:
        graph = _generate(folder, scale)
        _report_frontier(graph, rounds)
        _report_subgraphs(graph, rounds)
        _report_neighbors(graph, rounds)


def _generate(folder: str, scale: int) -> WholeGraph:
    arguments = ("generate", "web", "rmat", "--scale", str(scale), "--edge-factor", "16")
    command = [sys.executable, "-m", "gnnloom.workflows.cli.main", "--catalog", folder, *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stored = Catalog(folder)["web"].graph()
    start = time.process_time()
    graph = map_whole_graph(stored)
    seconds = time.process_time() - start
    size = sum(path.stat().st_size for path in copy_path(stored.artifact).iterdir())
    print(f"R-MAT scale {scale}: {graph.num_vertices:,} vertices, {graph.matrix.nnz:,} nonzeros")
    print(f"uncompressed copy: {size / 1e6:.0f} MB, made in {seconds:.2f} processor seconds")
    print(f"RESULT sampling_copy {seconds:.4g} s\nRESULT sampling_copy_size {size / 1e6:.4g} MB")
    return graph


def _alternate(rounds: int, repeats: Mapping[str, int], sides: Mapping[str, Callable[[int], Any]]) -> Measured:
    """Median processor seconds per batch of each side; each round draws ``repeats`` batches of a side, side by side."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for draw in sides.values():
        # Compiles, and maps the pages.
        draw(0)
    number = 1
    for _ in range(rounds):
        for name, draw in sides.items():
            count = repeats.get(name, 1)
            start = time.process_time()
            for k in range(number, number + count):
                draw(k)
            found[name].append((time.process_time() - start) / count)
        number += max(repeats.values(), default=1)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def _print(title: str, ours: str, measured: Measured, what: str) -> None:
    """A table and lines of results; ratios are how many times faster ``ours`` is."""
    print(f"\n{title}\n{'':28}{f'{what}/s':>14}{'ms':>10}{'ratio':>8}")
    for name, seconds in measured.items():
        print(f"{name:28}{1 / seconds:14.1f}{1e3 * seconds:10.2f}{seconds / measured[ours]:8.1f}")
    for name, seconds in measured.items():
        key = f"RESULT sampling_{name.replace(' ', '_')}"
        print(f"{key} {1 / seconds:.4g} {what}/s")
        if name != ours:
            print(f"{key}_over_{ours.replace(' ', '_')} {seconds / measured[ours]:.3g} x")
    sys.stdout.flush()


def _report_frontier(graph: WholeGraph, rounds: int) -> None:
    # The straightforward samplers have no answer to vertices without neighbors: everyone walks the others only, and
    # without self loops, so that all of them do the same work.
    indptr, indices = graph.matrix.indptr, graph.matrix.indices
    rng = np.random.default_rng(0)
    plain, capped = FrontierSampler(graph, 0, SIZE, FRONTIER), FrontierSampler(graph, 0, SIZE, FRONTIER, degree_cap=30)
    sides: dict[str, Callable[[int], Any]] = {
        "dashboard": lambda number: plain.draw(0, number),
        "dashboard capped at 30": lambda number: capped.draw(0, number),
        "linear scan compiled": lambda _: scan_frontier(indptr, indices, SIZE, FRONTIER, rng),
        "numpy choice": lambda _: choice_frontier(indptr, indices, SIZE, FRONTIER, rng),
    }
    repeats = {"dashboard": 20, "dashboard capped at 30": 20, "linear scan compiled": 5}
    title = f"Frontier, {SIZE} vertices, {FRONTIER} in the frontier; vertices only"
    _print(title, "dashboard", _alternate(rounds, repeats, sides), "subgraphs")


def _report_subgraphs(graph: WholeGraph, rounds: int) -> None:
    samplers = {
        "frontier": FrontierSampler(graph, 0, SIZE, FRONTIER),
        "vertex": VertexSampler(graph, 0, SIZE),
        "edge": EdgeSampler(graph, 0, SIZE),
        "walk": WalkSampler(graph, 0, SIZE, WALK),
    }
    feature = np.zeros((graph.num_vertices, 1), np.float32)
    sides: dict[str, Callable[[int], Any]] = {
        # Vertices that the sampler takes without repeats run out within an epoch, so each batch is of another one.
        f"{name} induced": lambda number, sampler=sampler: sampler.sample(number, 0)  # type: ignore[misc]
        for name, sampler in samplers.items()
    }
    if missing := why_no_pyg():
        print(f"\nPyG's GraphSAINT loader is left out: {missing}")
    else:
        walks = pyg_walks(graph.matrix.indptr, graph.matrix.indices, feature, SIZE // (WALK + 1), WALK)
        sides["PyG GraphSAINT walk"] = lambda _: next(walks)
    title = f"Induced subgraphs of {SIZE} drawn vertices"
    _print(title, "walk induced", _alternate(rounds, {}, sides), "subgraphs")


def _report_neighbors(graph: WholeGraph, rounds: int) -> None:
    n = graph.num_vertices
    feature = np.random.default_rng(0).random((n, FEATURES), np.float32)
    sampler = NeighborSampler(graph, 0, np.arange(n), FANOUTS, BATCH)
    whole: dict[str, Callable[[int], Any]] = {
        "neighbor with features": lambda number: feature[sampler.sample(number, 0).vertices],
        "neighbor structure only": lambda number: sampler.sample(number, 0),
    }
    sample = sampler.sample(0, 0)
    print(
        f"\na batch: {len(sample.vertices):,} vertices, {sum(len(block.entry) for block in sample.blocks):,} nonzeros"
    )
    if missing := why_no_pyg():
        print(f"PyG's NeighborLoader is left out: {missing}")
    else:
        batches = _single_thread(pyg_neighbor(graph.matrix.indptr, graph.matrix.indices, feature, FANOUTS, BATCH, 0))
        whole["PyG NeighborLoader"] = lambda _: next(batches)
    title = f"Neighbors, {BATCH} seeds, fan-outs {FANOUTS}, {FEATURES} features"
    _print(title, "neighbor with features", _alternate(rounds, {}, whole), "batches")


def _single_thread(batches: Iterator[Any]) -> Iterator[Any]:
    import torch

    torch.set_num_threads(1)
    return batches


if __name__ == "__main__":
    main()
