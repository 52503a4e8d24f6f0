"""Vertex data of grid shards: processor time, files opened and bytes moved.

Runs in one process, so that files are counted where they are opened. The graph has an edge per vertex: what is
measured is the vertex data.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from processes import watched

sys.path.insert(0, str(Path(__file__).parents[1]))

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import NumpyVertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog

#: Vertices, width of the features, and rows and columns of the grid.
SCALES = {"small": (1_000_000, 64, 16), "full": (16_000_000, 64, 16)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--folder", type=Path, help="folder for the dataset, by default a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for name, value, unit in measure(Path(folder), *SCALES[arguments.scale]):
            print(f"RESULT {name} {value:.6g} {unit}")


def measure(folder: Path, num_vertices: int, width: int, side: int) -> list[tuple[str, float, str]]:
    """Cut the vertex data into a grid of ``side`` rows and columns."""
    dataset, cluster = Catalog(folder / "catalog").create("large"), InProcessCluster()
    ids = np.arange(num_vertices)
    np.save(folder / "edges.npy", np.stack([ids, np.roll(ids, 1)]))
    graph = ingest_graph(dataset, open_edges(None, [str(folder / "edges.npy")]), IngestOptions(), cluster)
    features = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (num_vertices, width))
    for start in range(0, num_vertices, 1 << 18):
        features[start : start + (1 << 18)] = np.random.default_rng(start).random(
            features[start : start + (1 << 18)].shape
        )
    features.flush()
    ingest_vertices(dataset, NumpyVertices.open(feature=str(folder / "x.npy")), cluster)
    opened = _count_opens()
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    with watched() as process:
        shards = shard_grid(dataset, graph, GridOptions((side, side), "single"), cluster)
    after, seconds = resource.getrusage(resource.RUSAGE_SELF), shards.artifact.measured["task_seconds"]
    phases = {name: took for name, took in seconds.items() if name in {"route", "merge", "order", "bucket"}}
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [
        ("shards.grid.processor", processor, "s"),
        ("shards.grid.wall", time.perf_counter() - started, "s"),
        ("shards.grid.vertex_tasks", sum(phases.values()), "s"),
        ("shards.grid.opens.spill", opened["spill"], "files"),
        ("shards.grid.opens.all", sum(opened.values()), "files"),
        ("shards.grid.private", process.private, "B"),
    ]


def _count_opens() -> Counter[str]:
    """Count what this process opens from now on: ``spill`` files of vertex data, and others."""
    opened: Counter[str] = Counter()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | Path):
            path = str(arguments[0])
            opened["spill" if "/.work/rows/" in path or "/.work/routed/" in path else "other"] += 1

    sys.addaudithook(hook)
    return opened


if __name__ == "__main__":
    main()
