"""First step for names as ids: every range of the source leaves files of its sorted distinct names and its edges.

A file holds as many edges as fit in memory. Arrow finds the distinct names of each chunk, then sorts those of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, LaneSet, LaneWriter, writable
from gnnloom.pipeline.ingest.names.spill import LaneNames, NameSpill
from gnnloom.pipeline.matrix_sort.scatter import range_facts
from gnnloom.pipeline.sources.names import NameChunk, NamedEdgeSource, Names
from gnnloom.pipeline.sources.source import SourceRange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.progress import Done
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord

#: Names that each file contributes to the sample that cuts the ranges of names.
SAMPLES = 64

#: Leading bytes of a name that the sample keeps: enough to cut at, and short even if names have 65,536 bytes.
SAMPLE_BYTES = 64

#: Approximate bytes of memory per distinct name in addition to its text: offsets, positions, and Arrow's hash table.
NAME_MEMORY = 64


def spill_limit(memory: int) -> int:
    """Bytes from which on what was collected is written to a file, by a worker that may use ``memory`` bytes."""
    # Sorting and merging the names of a file takes several times what the chunks take.
    return working_memory(memory) // 16


def spill_memory(text_bytes: int, num_names: int, num_edges: int) -> int:
    """Bytes that collected names and edges take.

    Args:
        text_bytes: of the text and the offsets of distinct names.
    """
    # Two positions and a weight per edge.
    return text_bytes + NAME_MEMORY * num_names + 12 * num_edges


@dataclass(frozen=True)
class CollectNamesTask:
    """Collects the names of one range of the source.

    Attributes:
        memory: bytes that the worker may use.
        lane: where the files go, relative to the work folder.
    """

    writer: ArtifactWriter
    number: int
    source: NamedEdgeSource
    range: SourceRange
    memory: int
    lane: Lane

    @property
    def name(self) -> str:
        return f"names/{self.number:05d}"


def collect_names(writer: ArtifactWriter, source: NamedEdgeSource, cluster: Cluster) -> list[TaskRecord]:
    """Collect the names of the ranges that have no usable record; returns all records in the order of the source.

    Raises:
        InputError: the source cannot be read or has no edges, or only some of its edges have a weight.
    """
    ranges = source.ranges()
    lanes = LaneSet.create(writer.work, "names/collected", len(ranges))
    tasks = [
        CollectNamesTask(writer, number, source, source_range, cluster.memory, lanes.lane(number))
        for number, source_range in enumerate(ranges)
    ]
    records = run_missing("names", cluster, writer, collect_range, tasks, is_usable=_is_usable)
    _check([record.facts for record in records])
    return records


def _is_usable(task: CollectNamesTask, record: TaskRecord) -> bool:
    # Earlier versions wrote no lanes.
    if "lane" not in record.facts or record.facts["range"] != range_facts(task.range):
        return False
    return LaneNames.of(record.facts).is_intact(task.writer.work)


def _check(facts: Sequence[Mapping[str, Any]]) -> None:
    if not any(fact["edges"] for fact in facts):
        raise InputError("the source has no edges")
    if len({file.weighted for fact in facts for file in LaneNames.of(fact)}) > 1:
        raise InputError("some edges of the source have a weight and some have none")


def collect_range(task: CollectNamesTask) -> Done:
    """Write the files of one range; returns its number of edges.

    Raises:
        InputError: the source cannot be read.
    """
    with task.writer.task(task.name) as output, writable(task.writer.work, task.lane) as lane:
        collected = _Collected(task, lane)
        edges = 0
        for chunk in task.source.read_names(task.range):
            if len(chunk.source):
                edges += len(chunk.source)
                collected.add(chunk)
        collected.finish()
        output.facts = {
            "range": range_facts(task.range),
            "edges": edges,
            "lane": task.lane.to_json(),
            # The key is a name on disk, which stays.
            "runs": [file.to_json() for file in collected.files],
            "samples": [sample.hex() for sample in collected.samples],
        }
    return Done(edges)


class _Collected:
    """The files and the sample of one range."""

    def __init__(self, task: CollectNamesTask, lane: LaneWriter) -> None:
        self._task, self._lane = task, lane
        self._limit = spill_limit(task.memory)
        self._growing = _NameSpillBuilder()
        self.files: list[NameSpill] = []
        self.samples: list[bytes] = []

    def add(self, chunk: NameChunk) -> None:
        self._growing.add(chunk)
        if self._growing.memory > self._limit:
            self._write()

    def finish(self) -> None:
        if self._growing.num_edges:
            self._write()

    def _write(self) -> None:
        names, positions = sorted_distinct(self._growing.distinct)
        start = self.files[-1].stop if self.files else 0
        file = self._growing.described(self._task.lane, start, names)
        self._growing.write(self._lane, file, names, positions)
        self.files.append(file)
        step = max(1, len(names) // SAMPLES)
        self.samples += [names.name(number)[:SAMPLE_BYTES] for number in range(0, len(names), step)]
        self._growing = _NameSpillBuilder()


@dataclass
class _NameSpillBuilder:
    """A file that is still growing: the distinct names of each chunk, and its edges' ends as positions among them."""

    distinct: list[Any] = field(default_factory=list)
    ends: list[NDArray[np.int32]] = field(default_factory=list)
    weights: list[NDArray[np.float32]] = field(default_factory=list)
    num_edges: int = 0
    memory: int = 0

    def add(self, chunk: NameChunk) -> None:
        import pyarrow as pa  # noqa: PLC0415 - only names need it

        encoded = pa.concat_arrays([chunk.source.to_arrow(), chunk.target.to_arrow()]).dictionary_encode()
        self.distinct.append(encoded.dictionary)
        self.ends.append(encoded.indices.to_numpy().reshape(2, -1))
        if chunk.weight is not None:
            # A copy, because the weights may be a view of a longer buffer, which would stay in memory.
            self.weights.append(chunk.weight.copy())
        self.num_edges += len(chunk.source)
        self.memory += spill_memory(encoded.dictionary.nbytes, len(encoded.dictionary), len(chunk.source))

    def described(self, lane: Lane, start: int, names: Names) -> NameSpill:
        """The file with these names that begins at byte ``start`` of a lane."""
        return NameSpill(lane, start, len(names), len(names.text), self.num_edges, bool(self.weights))

    def write(self, lane: LaneWriter, file: NameSpill, names: Names, positions: NDArray[np.int32]) -> None:
        """Write all but the numbers; ``names`` and ``positions`` come from :func:`sorted_distinct`."""
        ends = list(self._ends_among_all(positions))
        columns = [*(pair[0] for pair in ends), *(pair[1] for pair in ends), *self.weights]
        offset = file.offset_at
        for array in (names.offset, names.text, *columns):
            offset = lane.write(offset, array)

    def _ends_among_all(self, positions: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
        """(2, num_edges) per chunk: the ends of its edges as positions among the names of the whole file."""
        first = 0
        for distinct, ends in zip(self.distinct, self.ends, strict=True):
            yield positions[first : first + len(distinct)][ends]
            first += len(distinct)


def sorted_distinct(arrays: Sequence[Any]) -> tuple[Names, NDArray[np.int32]]:
    """Find the distinct names of several of Arrow's large binary arrays.

    Returns:
        The distinct names, ascending by their bytes; (num_names,) int32 position of every given name among them.
    """
    import pyarrow as pa  # noqa: PLC0415 - only names need it
    import pyarrow.compute as pc  # noqa: PLC0415

    # Hashing first: only distinct names are sorted, far fewer than the names given.
    encoded = pa.concat_arrays(arrays).dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary)
    # Arrow's dictionary is in order of first occurrence; the inverse of the sorting order gives the ranks.
    rank = np.empty(len(order), np.int32)
    rank[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
    return Names.from_arrow(encoded.dictionary.take(order)), rank[encoded.indices.to_numpy()]
