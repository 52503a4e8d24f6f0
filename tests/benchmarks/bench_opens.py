"""What shared files save: stages whose tasks write into lanes of at most 16 files, compared with two other ways.

    python tests/benchmarks/bench_opens.py [--scale small|full] [--folder DIR]

Runs in one process. An ingest leaves hundreds of spill files, and a graph of hundreds of row blocks is cut into row and
grid shards. ``shared`` is how stages work; with ``own``, every task writes a file of its own; with ``merged``, levels
of merges leave at most 16 sources for each position. The three alternate; figures are medians over the rounds. Bytes
moved are those of read and write calls. Last come the times that the ways trade: an open with a read of 64 KiB, and
reading and copying as many bytes in long runs.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from gnnloom.pipeline.external_sort import spill
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.generators.rmat import RmatEdges
from gnnloom.pipeline.sources.numpy_edges import RANGE_EDGES, NumpyEdges
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import NumpyVertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.disk.work_folder import Scratch

#: log2 of the vertices that are ingested, and spill files of the ingest; log2 of the vertices of the graph that is cut
#: into shards, and its row blocks; rounds.
SCALES = {"small": ((16, 60), (14, 32), 1), "full": ((20, 256), (19, 128), 3)}
#: Edges per vertex, width of the features, parts, and rows and columns of the grid.
EDGE_FACTOR, WIDTH, PARTS, GRID = 16, 32, 4, (2, 2)
#: The ways that are compared, as sizes of temporary files.
WAYS = {
    "shared": Scratch(),
    "own": Scratch(files=1 << 60),
    "merged": Scratch(spill_files=16, source_bytes=1 << 60),
}
#: Bytes that are read after an open, and bytes of a file.
READ_BYTES, FILE_BYTES = 64 << 10, 4 << 20


@dataclass(frozen=True)
class Cost:
    """What a stage took: processor and wall seconds, bytes in read and write calls, and temporary files opened."""

    processor: float
    wall: float
    moved: int
    opens: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument("--folder", type=Path, help="folder for the datasets, by default a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bench-opens-") as folder:
        for line in chain(_stages(Path(folder), *SCALES[arguments.scale]), _accesses(Path(folder))):
            sys.stdout.write(f"RESULT {line}\n")


def _stages(folder: Path, ingested: tuple[int, int], cut: tuple[int, int], rounds: int) -> Iterator[str]:
    """Measure every stage in all ways, in turn."""
    stages, counter = _prepared(folder, ingested, cut), _OpenCounter()
    for name, stage in stages.items():
        found: dict[str, list[Cost]] = {way: [] for way in WAYS}
        for number in range(rounds + 1):
            for way, costs in found.items():
                cost = _measure(partial(stage, InProcessCluster(scratch=WAYS[way])), counter)
                # The first round compiles.
                if number:
                    costs.append(cost)
        medians = {way: _median(costs) for way, costs in found.items()}
        for way, cost in medians.items():
            yield f"opens.{name}.{way}.processor {cost.processor:.3f} s"
            yield f"opens.{name}.{way}.wall {cost.wall:.3f} s"
            yield f"opens.{name}.{way}.moved {cost.moved / 1e6:.0f} MB"
            yield f"opens.{name}.{way}.opens {cost.opens} files"
            yield f"opens.{name}.{way}.ratio {cost.processor / medians['shared'].processor:.3f} x"


def _prepared(
    folder: Path, ingested: tuple[int, int], cut: tuple[int, int]
) -> dict[str, Callable[[InProcessCluster], None]]:
    """The stages by name, with what they read."""
    (ingest_scale, num_files), (shard_scale, num_blocks) = ingested, cut
    catalog, cluster = Catalog(folder / "catalog"), InProcessCluster()
    edges, few_edges = (_edges(folder, scale) for scale in (ingest_scale, shard_scale))
    # Blocks are whole units of rows, so smaller units make as many blocks of a smaller graph.
    cut_finely = Scratch(block_entries=(2 * EDGE_FACTOR << shard_scale) // num_blocks)
    with patch.object(spill, "MIN_SHIFT", max(0, shard_scale - num_blocks.bit_length())):
        dataset = _ingest(catalog, few_edges, "blocks", InProcessCluster(scratch=cut_finely))
    graph, feature = dataset.graph(), folder / "feature.npy"
    np.save(feature, np.random.default_rng(0).random((graph.num_vertices, WIDTH), np.float32))
    ingest_vertices(dataset, NumpyVertices.open(feature=str(feature)), cluster)
    partition = partition_graph(dataset, graph, PartitionOptions(PARTS, "random"), cluster)

    def ingest(cluster: InProcessCluster) -> None:
        range_edges = (EDGE_FACTOR << ingest_scale) // num_files
        shutil.rmtree(_ingest(catalog, edges, "measured", cluster, range_edges).path)

    def row_shards(cluster: InProcessCluster) -> None:
        shutil.rmtree(shard_rows(dataset, partition, cluster).artifact.path)

    def grid_shards(cluster: InProcessCluster) -> None:
        shutil.rmtree(shard_grid(dataset, graph, GridOptions(GRID, "single"), cluster).artifact.path)

    return {"ingest": ingest, "row_shards": row_shards, "grid_shards": grid_shards}


def _edges(folder: Path, scale: int) -> Path:
    """A file of R-MAT edges, (2, num_edges) int64."""
    source, path = RmatEdges(scale=scale, edge_factor=EDGE_FACTOR, scramble=True, seed=0), folder / f"edges-{scale}.npy"
    edges = np.lib.format.open_memmap(path, "w+", np.int64, (2, source.num_edges))
    done = 0
    for span in source.ranges():
        for chunk in source.read(span):
            edges[:, done : done + len(chunk.source)] = chunk.source, chunk.target
            done += len(chunk.source)
    edges.flush()
    return path


def _ingest(
    catalog: Catalog, edges: Path, name: str, cluster: InProcessCluster, range_edges: int = RANGE_EDGES
) -> Dataset:
    dataset, source = catalog.create(name), replace(NumpyEdges.open([str(edges)]), range_edges=range_edges)
    ingest_graph(dataset, source, IngestOptions(undirected=True), cluster)
    return dataset


class _OpenCounter:
    """Counts the temporary files of data that this process opens."""

    def __init__(self) -> None:
        self.opened = 0
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            is_read = mode.startswith("r") if mode else flags & os.O_ACCMODE == os.O_RDONLY
            if is_read and "/.work/" in str(path) and Path(str(path)).suffix != ".json":
                self.opened += 1


def _measure(stage: Callable[[], None], counter: _OpenCounter) -> Cost:
    moved, opened = _moved(), counter.opened
    usage, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    stage()
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    processor = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    return Cost(processor, wall, _moved() - moved, counter.opened - opened)


def _moved() -> int:
    """Bytes in all read and write calls of this process."""
    counted = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counted["rchar"]) + int(counted["wchar"])


def _median(costs: Sequence[Cost]) -> Cost:
    processor, wall, moved, opens = (
        statistics.median(getattr(cost, name) for cost in costs) for name in ("processor", "wall", "moved", "opens")
    )
    return Cost(processor, wall, int(moved), int(opens))


def _accesses(folder: Path) -> Iterator[str]:
    """Microseconds of an open with a read of 64 KiB in the middle of a file, and of 64 KiB in long runs."""
    paths = [folder / f"file-{number:03d}" for number in range(128)]
    content = np.random.default_rng(1).integers(0, 256, FILE_BYTES, np.uint8).tobytes()
    for path in paths:
        path.write_bytes(content)
    for cache in ("warm", "cold"):
        for name, access in (("open_read", _open_and_read), ("read", _read), ("copy", _copy)):
            times, num_reads = [], 1 if name == "open_read" else FILE_BYTES // READ_BYTES
            for path in paths:
                _cache(path, cold=cache == "cold")
                started = time.perf_counter()
                access(path)
                times.append((time.perf_counter() - started) / num_reads)
            yield f"opens.{name}_64KiB.{cache} {1e6 * statistics.median(times):.1f} us"


def _cache(path: Path, *, cold: bool) -> None:
    """Bring a file into the page cache, or drop it from there."""
    with path.open("rb") as file:
        if cold:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        else:
            file.read()


def _open_and_read(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.pread(descriptor, READ_BYTES, FILE_BYTES // 2)
    os.close(descriptor)


def _read(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        file.read()


def _copy(path: Path) -> None:
    """Read a file and write it back to the disk, in calls of 4 MiB."""
    copy = path.with_name("copy")
    with path.open("rb", buffering=0) as file, copy.open("wb", buffering=0) as out:
        out.write(file.read())
        os.fsync(out.fileno())


if __name__ == "__main__":
    main()
