"""Projects the tasks, memory, disk and time of an ingest from a short calibration, before the ingest runs.

:func:`gnnloom.pipeline.ingest.calibration.calibrate` reads and sorts a sample of the source. :func:`extrapolate` is a
pure function of its results. A projection that does not fit is refused with its figures.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from gnnloom.pipeline.ingest.calibration import Calibration
from gnnloom.pipeline.ingest.keys.arrays import KeyTable, array_phases
from gnnloom.pipeline.ingest.keys.numbered import KeyPlan, KeySizes
from gnnloom.pipeline.matrix_sort.blocks import block_rows_limit
from gnnloom.pipeline.matrix_sort.sort_plan import SortOptions, SortPlan, SortSizes
from gnnloom.pipeline.tasks.memory import BASE_MEMORY, MIB
from gnnloom.pipeline.tasks.phase import Phase, count, temporary_bytes
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.machine_memory import memory_text
from gnnloom.storage.matrix.csr import TIME_BYTES, WEIGHT_BYTES

#: Share of the free disk space that an ingest may fill; file systems slow down when they are nearly full.
DISK_SHARE = 0.95

#: Approximate ratio of the time to ingest names to the time to ingest numbers: distinct names are found twice, sorted
#: and merged.
_NAME_COST = 6

#: Approximate ratio of the time with `--ids compact` to the time if ids are kept: they are sorted and merged first.
_COMPACT_COST = 2

#: Bytes of a row's pointer and degree, before compression.
_ROW_BYTES = 16


@dataclass(frozen=True)
class Resources:
    """Resources that an ingest may use.

    Attributes:
        workers: tasks at a time.
        memory: bytes of memory per worker.
        disk_free: bytes free on the disk.
        cache_free: bytes of page cache that files may take before the disk sets the pace.
    """

    workers: int
    memory: int
    disk_free: int
    cache_free: int

    @classmethod
    def at(cls, folder: Path, workers: int, memory: int) -> Resources:
        """The resources of workers whose files are below ``folder``."""
        return cls(workers, memory, shutil.disk_usage(folder).free, _cache_free())


def _cache_free() -> int:
    """Half of the memory that Linux calls available: about what it lets unwritten files take; 0 if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    available = next((line for line in lines if line.startswith("MemAvailable:")), "MemAvailable: 0 kB")
    return int(available.split()[1]) * 1024 // 2


@dataclass(frozen=True)
class IngestProjection:
    """Expected needs of an ingest. Counts that only a full read can give are estimates.

    Attributes:
        files: files that the source names; 0 for a generator.
        edges: edges of the source.
        vertices: rows of the matrix.
        entries: entries of the matrix, before equal ones are merged.
        ranges: tasks of pass 1.
        blocks: tasks of pass 2, row blocks of the graph.
        workers: tasks at a time.
        processes: processes that run the tasks; workers are threads if there are fewer processes than workers.
        peak_memory: bytes of the largest process.
        memory_limit_bytes: bytes that a worker may use.
        spill_bytes: bytes of temporary files between the passes.
        output_bytes: bytes of the graph on disk.
        disk_free_bytes: bytes free on the disk.
        seconds: wall time of the whole ingest, with all workers busy.
        edges_low, edges_high: range in which ``edges`` is expected; equal to it if the source states its edges.
        weighted: the edges have weights.
        has_times: the edges have times.
        compressed_bytes: bytes of the largest compressed file or array that a single task reads from its start,
            because its compression forces that; 0 if there is none of 1 GiB or more.
        name_bytes: average bytes of a name, if ids are names; 0 if they are numbers.
        vertex_bytes: bytes of the vertex data that come along with the edges, before compression.
    """

    files: int
    edges: int
    vertices: int
    entries: int
    ranges: int
    blocks: int
    workers: int
    processes: int
    peak_memory: int
    memory_limit_bytes: int
    spill_bytes: int
    output_bytes: int
    disk_free_bytes: int
    seconds: float
    edges_low: int = 0
    edges_high: int = 0
    weighted: bool = False
    has_times: bool = False
    compressed_bytes: int = 0
    name_bytes: float = 0.0
    vertex_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def work(self) -> float:
        """Approximate seconds that a single worker would need."""
        return self.seconds * self.workers

    def in_one_process(self) -> IngestProjection:
        """The same with workers as threads of one process, which holds the interpreter and its libraries once."""
        buffers = self.peak_memory - BASE_MEMORY
        return replace(self, processes=1, peak_memory=BASE_MEMORY + self.workers * buffers)

    def check(self) -> None:
        """Refuse what does not fit.

        Raises:
            BudgetError: temporary files and output exceed the free disk.
        """
        # The vertex data are stored after the temporary files are removed.
        needed = self.output_bytes + max(self.spill_bytes, self.vertex_bytes)
        if self.vertex_bytes > self.spill_bytes and needed > self.disk_free_bytes * DISK_SHARE:
            output, vertices, free = map(memory_text, (self.output_bytes, self.vertex_bytes, self.disk_free_bytes))
            raise BudgetError(
                f"the graph needs about {output} and its vertex data {vertices} of the disk, which has {free} free;"
                " choose a catalog on a larger disk, or store features with `--store float16`"
            )
        if needed > self.disk_free_bytes * DISK_SHARE:
            spill, output, free = map(memory_text, (self.spill_bytes, self.output_bytes, self.disk_free_bytes))
            raise BudgetError(
                f"{self.edges:,} edges need about {spill} of spill and {output} of output on the disk, which has {free}"
                " free; choose a catalog on a larger disk"
            )

    def against(self, measured: Mapping[str, float]) -> dict[str, Any]:
        """Every measured figure with the projected figure, by name; JSON."""
        planned = self.to_json()
        return {name: {"planned": planned[name], "measured": value} for name, value in measured.items()}


def ingest_phases(
    sizes: SortSizes,
    options: SortOptions,
    memory: int,
    *,
    compact: bool = False,
    name_bytes: float = 0.0,
    scratch: Scratch = BESIDE,
) -> list[Phase]:
    """The phases of an ingest; if ids are renumbered, with the largest possible number of collected keys.

    Args:
        sizes: the edges.
        memory: bytes that a worker may use.
        compact: whether ids are renumbered.
        name_bytes: average bytes of a name, if ids are names; 0 if they are numbers.
        scratch: sizes of temporary files.

    Raises:
        BudgetError: the memory leaves no room for buffers.
    """
    writer = ArtifactWriter(Path(), "graph", "", scratch=scratch)
    if not compact:
        return SortPlan(sizes, options, memory, writer=writer).phases()
    keys = KeyPlan(KeySizes.stated(sizes, memory, name_bytes, writer.scratch), memory, writer)
    sort = SortPlan(sizes, options, memory, keys.reading, writer)
    counts = (sizes.num_vertices, int(sizes.num_vertices * name_bytes)) if name_bytes else (sizes.num_vertices,)
    table = KeyTable.stated(keys.sizes.ids, counts, keys.sizes.key_ranges)
    return [keys.collect, *keys.merges, *sort.phases(), *array_phases(keys.writer, table, Path())]


def extrapolate(
    found: Calibration, undirected: bool, resources: Resources, merge: str | None = "sum"
) -> IngestProjection:
    """Project from what a calibration found to the whole source.

    Args:
        undirected: whether every edge is stored in both directions.
        merge: how equal edges are merged, as in :class:`~gnnloom.pipeline.matrix_sort.sort_plan.SortOptions`.

    Raises:
        BudgetError: the memory per worker leaves no room for buffers, or the rows of a block exceed it.
    """
    memory, options = resources.memory, SortOptions(undirected, merge=merge)
    sizes = SortSizes.even(
        found.vertices,
        found.edges,
        found.ranges,
        memory,
        undirected=undirected,
        value_bytes=found.value_bytes,
        marked=options.marks(found.value_bytes),
    )
    _check_rows(sizes, memory)
    compact = bool(found.distinct_ids)
    phases = ingest_phases(sizes, options, memory, compact=compact, name_bytes=found.name_bytes)
    entries, spill = sizes.entries, temporary_bytes(phases)
    output = int(entries * found.output_bytes + found.vertices * _ROW_BYTES * found.row_ratio)
    if found.name_bytes:
        output += int(found.vertices * (8 + found.name_bytes))
    work = found.edges * found.scatter_seconds + entries * found.sort_seconds
    beyond_cache = max(0, spill + output - resources.cache_free)
    # Work and writing overlap; data beyond the page cache have to reach the disk before the ingest can go on.
    seconds = max(work / resources.workers, beyond_cache / found.disk_rate)
    return IngestProjection(
        files=found.files,
        edges=found.edges,
        vertices=found.vertices,
        entries=entries,
        ranges=found.ranges,
        blocks=sizes.num_blocks,
        workers=resources.workers,
        processes=resources.workers,
        peak_memory=BASE_MEMORY + max(phase.most_memory for phase in count(phases)),
        memory_limit_bytes=memory,
        spill_bytes=spill,
        output_bytes=output,
        disk_free_bytes=resources.disk_free,
        edges_low=min(found.edges, found.edges_low or found.edges),
        edges_high=max(found.edges, found.edges_high),
        weighted=found.value_bytes == WEIGHT_BYTES,
        has_times=found.value_bytes == TIME_BYTES,
        name_bytes=found.name_bytes,
        seconds=round(seconds * (_NAME_COST if found.name_bytes else _COMPACT_COST if found.distinct_ids else 1), 2),
    )


def _check_rows(sizes: SortSizes, memory: int) -> None:
    rows = max(last - first for first, last in pairwise(sizes.block_rows))
    if rows > block_rows_limit(memory):
        raise BudgetError(
            f"row blocks of {sizes.num_vertices:,} vertices have {rows:,} rows, too many for"
            f" {memory // MIB} MiB per worker; increase --memory, or renumber with `--ids compact`"
        )
