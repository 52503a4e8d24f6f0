"""Samplers and epochs on sampled neighbors, on an undirected R-MAT graph and one with planted communities.

    python tests/benchmarks/bench_sampling.py [--scale small|full] [--folder FOLDER]

One process and one thread. Frontier sampling (8000 vertices, 1000 of them in the frontier) against straightforward
samplers: one draws from all weights of the frontier by NumPy's Generator.choice, one scans them in compiled code.
Induced subgraphs, and batches of sampled neighbors (1024 seeds, fan-outs 15, 10, 5, with the 64 features of every
vertex), against PyTorch Geometric's loaders, if torch-sparse is installed. The sides of a comparison take turns;
figures are medians of processor seconds. Epochs: see neighbor_epochs.py;
propagation on a subgraph: see feature_partition.py. Prints tables, then lines ``RESULT name value
unit``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from commands import gnnloom
from feature_partition import report_propagation
from neighbor_epochs import report_epochs
from numpy.typing import NDArray
from random_vertices import random_vertices
from sampling_peers import choice_frontier, pyg_neighbor, pyg_walks, scan_frontier, why_no_pyg

from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.whole_graph import WholeGraph, map_whole_graph
from gnnloom.storage.format.mapped_copy import copy_path
from gnnloom.storage.sampling.edge import EdgeSampler
from gnnloom.storage.sampling.frontier import FrontierSampler
from gnnloom.storage.sampling.layers.seeds import VertexSeeds
from gnnloom.storage.sampling.neighbor import NeighborSampler
from gnnloom.storage.sampling.sampler import Sample
from gnnloom.storage.sampling.vertex import VertexSampler
from gnnloom.storage.sampling.walk import WalkSampler

#: Scale of the R-MAT graph (edge factor 16), vertices and edges of the planted one, and rounds.
SCALES = {"small": (14, 20_000, 400_000, 3), "full": (20, 1_000_000, 20_000_000, 9)}
#: Share of the vertices that are for training.
SHARE = 0.01
SIZE, FRONTIER, WALK = 8000, 1000, 4
FANOUTS, BATCH, FEATURES = [15, 10, 5], 1024, 64

Measured = Mapping[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--folder", type=Path, help="folder for temporary files [default: the system's]")
    options = parser.parse_args()
    scale, vertices, edges, rounds = SCALES[options.scale]
    missing = why_no_pyg()
    if missing:
        print(f"PyG's loaders are left out: {missing}")
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-sampling-") as folder:
        graph = _generate(folder, "rmat", "rmat", "--scale", str(scale), "--edge-factor", "16")
        _report_frontier(graph, rounds)
        planted = _generate(folder, "planted", "sbm", "--vertices", str(vertices), "--edges", str(edges))
        # Random features and few training vertices, as for the other graph: this is about time.
        stored = Catalog(folder)["planted"].vertices().artifact
        gnnloom(folder, "catalog", "rm", "planted", "--artifact", f"vertices/{stored.key}")
        for name, each in {"rmat": graph, "planted": planted}.items():
            _report_subgraphs(name, each, rounds)
            report_propagation(name, FrontierSampler(each, 0, SIZE, FRONTIER).sample(0, 0).blocks[0].matrix)
            _report_neighbors(name, each, rounds)
            inputs = Path(folder) / "inputs"
            gnnloom(folder, "features", name, *random_vertices(inputs, each.num_vertices, FEATURES, SHARE))
            shutil.rmtree(inputs)
            gnnloom(folder, "partition", name, "--parts", "1", "--method", "block")
            gnnloom(folder, "shard", name, "--parts", "1")
            report_epochs(folder, name, with_peer=not missing)


def _generate(folder: str, name: str, *arguments: str) -> WholeGraph:
    gnnloom(folder, "generate", name, *arguments)
    stored = Catalog(folder)[name].graph()
    start = time.process_time()
    graph = map_whole_graph(stored)
    seconds = time.process_time() - start
    size = sum(path.stat().st_size for path in copy_path(stored.artifact).iterdir())
    print(f"\n{name}: {graph.num_vertices:,} vertices, {graph.matrix.nnz:,} nonzeros")
    print(f"uncompressed copy: {size / 1e6:.0f} MB, made in {seconds:.2f} processor seconds")
    print(f"RESULT sampling_{name}_copy {seconds:.4g} s\nRESULT sampling_{name}_copy_size {size / 1e6:.4g} MB")
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


def _print(title: str, ours: str, measured: Measured, what: str, prefix: str = "sampling") -> None:
    """A table and lines of results; ratios are how many times faster ``ours`` is."""
    print(f"\n{title}\n{'':28}{f'{what}/s':>14}{'ms':>10}{'ratio':>8}")
    for name, seconds in measured.items():
        print(f"{name:28}{1 / seconds:14.1f}{1e3 * seconds:10.2f}{seconds / measured[ours]:8.1f}")
    for name, seconds in measured.items():
        key = f"RESULT {prefix}_{name.replace(' ', '_')}"
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


def _report_subgraphs(name: str, graph: WholeGraph, rounds: int) -> None:
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
    if not why_no_pyg():
        walks = pyg_walks(graph.matrix.indptr, graph.matrix.indices, feature, SIZE // (WALK + 1), WALK)
        sides["PyG GraphSAINT walk"] = lambda _: next(walks)
    title = f"{name}: induced subgraphs of {SIZE} drawn vertices"
    _print(title, "frontier induced", _alternate(rounds, {}, sides), "subgraphs", f"sampling_{name}")


def _report_neighbors(name: str, graph: WholeGraph, rounds: int) -> None:
    n = graph.num_vertices
    feature = np.random.default_rng(0).random((n, FEATURES), np.float32)
    sampler, seeds = NeighborSampler(graph, 0, FANOUTS), VertexSeeds(np.arange(n), BATCH, 0)
    labor = NeighborSampler(graph, 0, FANOUTS, neighbor_sampler="labor")

    def drawn(number: int, sampler: NeighborSampler = sampler) -> Sample:
        return sampler.sample_of(seeds.of(number, 0), number, 0)

    sample = drawn(0)
    # As in training, the rows of all batches go to the same memory. Batches differ in size a little.
    rows = np.empty((min(n, 2 * len(sample.vertices)), FEATURES), np.float32)
    whole: dict[str, Callable[[int], Any]] = {
        "neighbor with features": lambda number: _gather(feature, drawn(number).vertices, rows),
        "neighbor structure only": drawn,
        "labor with features": lambda number: _gather(feature, drawn(number, labor).vertices, rows),
        "labor structure only": lambda number: drawn(number, labor),
    }
    print(
        f"\na batch: {len(sample.vertices):,} vertices, {sum(len(block.entry) for block in sample.blocks):,} nonzeros"
    )
    share = len(drawn(0, labor).vertices) / len(sample.vertices)
    print(f"RESULT sampling_{name}_labor_vertices_over_neighbor {share:.3g} x")
    if not why_no_pyg():
        batches = _single_thread(pyg_neighbor(graph.matrix.indptr, graph.matrix.indices, feature, FANOUTS, BATCH, 0))
        whole["PyG NeighborLoader"] = lambda _: next(batches)
    title = f"{name}: neighbors, {BATCH} seeds, fan-outs {FANOUTS}, {FEATURES} features"
    _print(title, "neighbor with features", _alternate(rounds, {}, whole), "batches", f"sampling_{name}")


def _gather(feature: NDArray[Any], vertices: NDArray[np.int64], rows: NDArray[Any]) -> None:
    # All vertices exist, and other modes would copy the result.
    np.take(feature, vertices, axis=0, out=rows[: len(vertices)], mode="clip")


def _single_thread(batches: Iterator[Any]) -> Iterator[Any]:
    import torch

    torch.set_num_threads(1)
    return batches


if __name__ == "__main__":
    main()
