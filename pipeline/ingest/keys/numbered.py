"""The plan that numbers the keys of a source, and the edges of the source by these numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import LaneSet, OpenFiles, num_shared_files
from gnnloom.pipeline.ingest.keys.arrays import KeyTable
from gnnloom.pipeline.ingest.keys.blocks import KeyFile
from gnnloom.pipeline.ingest.keys.collect import CollectKeysTask, check_values, collect_range, file_edges
from gnnloom.pipeline.ingest.keys.key_types import KEY_TYPES
from gnnloom.pipeline.ingest.keys.merge import (
    PLACE_BITS,
    KeyLanes,
    KeyRanges,
    MergeKeysTask,
    merge_range,
    num_key_ranges,
    number_shuffle,
)
from gnnloom.pipeline.matrix_sort.scatter import range_name
from gnnloom.pipeline.matrix_sort.sort_plan import SortSizes
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.sources.source import CHUNK_EDGES, EdgeChunk, EdgeSource, SourceRange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import gathered_memory, working_memory
from gnnloom.pipeline.tasks.phase import Needs, Phase, records_of, run
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord
from gnnloom.storage.matrix.ranges import split_range

#: The first bit of the kind of a key in its number, if keys have kinds.
KIND_BITS: Final = 40


@dataclass(frozen=True)
class KeySizes:
    """Sizes of the numbered keys: of collected keys, or of stated ones.

    Attributes:
        ids: type of the keys: ``compact`` for numbers, or ``names``.
        num_ranges: tasks that read the source.
        source_bytes: bytes that they read.
        num_files: files of keys.
        num_keys: keys of all files.
        num_bytes: bytes of the keys.
        edge_bytes: bytes of the edges in the files.
        merged_bytes: bytes of the distinct keys, at most.
        key_ranges: ranges in which keys are merged.
        digest: of the collected keys.
    """

    ids: str
    num_ranges: int = 0
    source_bytes: int = 0
    num_files: int = 0
    num_keys: int = 0
    num_bytes: int = 0
    edge_bytes: int = 0
    merged_bytes: int = 0
    key_ranges: int = 0
    digest: str = ""

    @classmethod
    def of(cls, found: KeyRanges) -> KeySizes:
        """The sizes of collected keys."""
        files = list(chain.from_iterable(found.files()))
        keys, num_bytes = (
            sum(each) for each in zip(*((f.keys.num_keys, f.keys.num_bytes) for f in files), strict=True)
        )
        edges = sum(file.edge_bytes for file in files)
        ranges, count = len(found.collected), len(files)
        return cls(found.ids, ranges, 0, count, keys, num_bytes, edges, num_bytes, found.num_ranges, found.digest)

    @classmethod
    def stated(cls, edges: SortSizes, memory: int, name_bytes: float, scratch: Scratch) -> KeySizes:
        """An upper bound: no key occurs twice among the edges of a file, unless there are fewer keys than that.

        Args:
            edges: the edges; if ids are names, each edge has the text of two names, each followed by a separator.
            memory: bytes that a worker may use.
            name_bytes: average bytes of a name; 0 if ids are numbers.
            scratch: sizes of the ranges of keys.
        """
        ids, tasks, key_bytes = "names" if name_bytes else "compact", max(1, edges.num_ranges), 8 + name_bytes
        in_file = file_edges(memory, ids, name_bytes, scratch)
        files = tasks * -(-edges.edges // (tasks * in_file))
        keys = min(2 * edges.edges, files * edges.num_vertices)
        source = int(2 * edges.edges * (name_bytes + 1)) if name_bytes else 16 * edges.edges
        collected, table = int(keys * key_bytes), int(edges.num_vertices * key_bytes)
        ends, ranges = (8 + edges.value_bytes) * edges.edges, num_key_ranges(collected, files, scratch)
        return cls(ids, tasks, source, files, keys, collected, ends, min(collected, table), ranges)


@dataclass(frozen=True, eq=False)
class KeyPlan:
    """The phases that number the keys of a source.

    Attributes:
        sizes: of the collected keys, or stated. Before the keys are collected, only :attr:`collect` may be used.
        memory: bytes that a worker may use.
        source: an :class:`~gnnloom.pipeline.sources.source.EdgeSource`; None for plans that are counted and not run.
        ranges_path: file of the ranges of keys.
    """

    sizes: KeySizes
    memory: int
    writer: ArtifactWriter = field(default_factory=lambda: ArtifactWriter(Path(), "graph", ""))
    source: Any = None
    ranges_path: Path = Path()

    @cached_property
    def collect(self) -> Phase:
        """Sorts the keys of some edges at a time."""
        sizes = self.sizes
        ranges = self.source.ranges() if self.source is not None else [SourceRange(0, 0, 0)] * sizes.num_ranges
        lanes, count = LaneSet.named("keys/collected", len(ranges), self.writer.scratch), max(1, len(ranges))
        # In addition to the gathered edges: the chunk that is being read, and the text that it is parsed from.
        memory = min(gathered_memory(self.memory) + 20 * CHUNK_EDGES, -(-sizes.source_bytes // count) * 12)
        needs = Needs(-(-sizes.source_bytes // count), -(-(sizes.num_bytes + sizes.edge_bytes) // count), 0, memory)
        tasks = [
            CollectKeysTask(self.writer, name, needs, self.source, span, (sizes.ids,), self.memory, lanes.lane(number))
            for number, span in enumerate(ranges)
            for name in [f"collect/{range_name(number, span)}"]
        ]
        return Phase("collect", collect_range, tasks, files=(KeyLanes(self.writer.work, lanes),))

    @cached_property
    def _numbers(self) -> ShufflePlan:
        sizes = self.sizes
        shuffle = number_shuffle(sizes.num_files, sizes.num_ranges, f"numbers/{sizes.digest}")
        keys = sizes.key_ranges * sizes.num_files
        return ShufflePlan(self.writer, shuffle, sizes.key_ranges, 8 * sizes.num_keys, keys)

    @property
    def merges(self) -> list[Phase]:
        """Merge the keys of all files, and bring the numbers of the keys to their files."""
        sizes, numbers = self.sizes, self._numbers
        count = max(1, sizes.key_ranges)
        lanes = LaneSet.named("keys/merged", sizes.key_ranges, self.writer.scratch)
        keys = sizes.num_bytes // count
        needs = Needs(
            keys,
            (8 * sizes.num_keys + sizes.merged_bytes) // count,
            num_shared_files(sizes.num_ranges, self.writer.scratch),
            min(working_memory(self.memory), keys * 8),
        )
        tasks = []
        for number in range(sizes.key_ranges):
            name, to = f"merge-keys/{sizes.digest}-{number:05d}", (lanes.lane(number), numbers.lane(number))
            tasks.append(MergeKeysTask(self.writer, name, needs, number, self.ranges_path, self.memory, *to))
        files = (KeyLanes(self.writer.work, lanes), numbers.files)
        return [Phase("merge keys", merge_range, tasks, "keys", files=files), *numbers.merges("merge numbers")]

    @property
    def reading(self) -> list[Needs]:
        """Needs of the task that reads each range of the numbered edges."""
        sizes, count = self.sizes, max(1, self.sizes.num_ranges)
        reads = (8 * sizes.num_keys + sizes.edge_bytes) // count
        memory = 16 * sizes.num_keys // max(1, sizes.num_files)
        spans = (split_range(sizes.num_files, count, number) for number in range(sizes.num_ranges))
        # The file with the range's keys and edges, and those with the numbers.
        return [Needs(reads, 0, 1 + self._numbers.opens(span), memory) for span in spans]


def number_keys(writer: ArtifactWriter, source: EdgeSource, ids: str, cluster: Cluster) -> NumberedEdges:
    """Number the distinct ids or names of a source in ascending order, except for what an earlier run has done.

    Args:
        ids: ``compact`` for numbers, or ``names``.

    Raises:
        InputError: the source cannot be read, has no edges or a negative id, or only some of its edges have a weight.
    """
    collect = KeyPlan(KeySizes(ids), cluster.memory, writer, source).collect
    run([collect], cluster, writer)
    ranges = KeyRanges.of([(record, 0) for record in records_of(collect, writer)], ids, writer.scratch)
    check_values([file.value_bytes for files in ranges.files() for file in files])
    return NumberedEdges(writer.work, (merge_keys(writer, ranges, cluster)[0],), writer.scratch.read_edges)


def merge_keys(writer: ArtifactWriter, ranges: KeyRanges, cluster: Cluster) -> tuple[NumberedKeys, list[TaskRecord]]:
    """Merge collected keys, except for what an earlier run has done; returns their numbers, and what tasks recorded."""
    path = ranges.save(writer.work)
    phases = KeyPlan(KeySizes.of(ranges), cluster.memory, writer, None, path).merges
    run(phases, cluster, writer)
    num_kinds = ranges.num_kinds if ranges.kinds else 0
    numbered, records = NumberedKeys(path, len(ranges.collected), 0, num_kinds), records_of(phases[0], writer)
    for kind, table in enumerate(numbered.tables):
        KeyTable.of(records, ranges.ids, kind if num_kinds else None).save(table)
    return numbered, records


@dataclass(frozen=True)
class NumberedKeys:
    """The numbers of the keys of an end of edges, or of both.

    Attributes:
        ranges_path: file of the ranges of keys.
        num_ranges: number of ranges of the source that collected the keys of the edges.
        first_range: number of the first such range, among all ranges that collected keys of the same table.
        num_kinds: kinds of keys that are numbered apart; 0 if all keys have one numbering.
    """

    ranges_path: Path
    num_ranges: int
    first_range: int = 0
    num_kinds: int = 0

    @property
    def tables(self) -> list[Path]:
        """Files of the tables of the keys, by kind."""
        if not self.num_kinds:
            return [self.ranges_path.with_suffix(".table.json")]
        return [self.ranges_path.with_suffix(f".table-{kind}.json") for kind in range(self.num_kinds)]

    @property
    def table_path(self) -> Path:
        """File of the table of the keys, or of the keys of the first kind."""
        return self.tables[0]

    def num_keys(self, kind: int = 0) -> int:
        """Number of distinct keys of a kind; of all keys if they have no kinds."""
        return KeyTable.load(self.tables[kind]).firsts(0)[-1]

    @property
    def _firsts(self) -> NDArray[np.int64]:
        """(num_ranges * num_kinds,) int64 number of the first key of each range, and of each kind within a range."""
        firsts = [KeyTable.load(table).range_firsts + (kind << KIND_BITS) for kind, table in enumerate(self.tables)]
        return np.stack(firsts, axis=1).reshape(-1)

    def files(self) -> list[list[KeyFile]]:
        """The files of each range of the source."""
        return KeyRanges.load(self.ranges_path).files(self.first_range, self.first_range + self.num_ranges)

    def read(self, work: Path, number: int, opened: OpenFiles) -> Iterator[tuple[KeyFile, NDArray[np.int64]]]:
        """Each file of a range of the source, and the (num_keys,) int64 numbers of its keys; -1 for keys without one.

        If keys have kinds, the bits of a number from ``KIND_BITS`` on are its kind.

        Args:
            number: number of the range among the ranges of the edges.
        """
        ranges, firsts = KeyRanges.load(self.ranges_path), self._firsts
        at, rows = self.first_range + number, ranges.shuffle.rows(work, opened)
        for place, file in enumerate(ranges.files(at, at + 1)[0], start=ranges.num_files(at)):
            # Ranges and keys ascend, so the numbers come in the order of the file's keys.
            routed = rows.read(place, place + 1).column("number")
            # Numbers start anew in each range; the keys of earlier ranges come first.
            numbers: NDArray[np.int64] = firsts[routed >> PLACE_BITS]
            numbers += routed & ((1 << PLACE_BITS) - 1)
            if not ranges.adds:
                numbers[routed < 0] = -1
            yield file, numbers


@dataclass(frozen=True)
class NumberedEdges:
    """Edges whose keys were numbered; implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`.

    Attributes:
        work: work folder of the artifact that is being made.
        ends: numbers of the keys of both ends, or of the sources' keys and of the targets' keys.
        chunk_edges: edges that are read at a time.
    """

    work: Path
    ends: tuple[NumberedKeys, ...]
    chunk_edges: int

    @property
    def table_path(self) -> Path:
        """File of the table of the keys of sources."""
        return self.ends[0].table_path

    def identity(self) -> dict[str, Any]:
        return {"format": "numbered"}

    def num_vertices(self) -> int | None:
        return self.ends[0].num_keys()

    def ranges(self) -> Sequence[SourceRange]:
        groups = enumerate(self.ends[0].files())
        return [SourceRange(number, 0, sum(file.num_edges for file in files)) for number, files in groups]

    def key(self, number: int) -> str:
        """The id or name of a vertex, as text for messages."""
        table = KeyTable.load(self.table_path)
        keys = KEY_TYPES[table.ids]
        found = keys.key(keys.read(partial(table.read, self.work), number, number + 1), 0)
        return found.decode(errors="backslashreplace") if isinstance(found, bytes) else str(found)

    def spill_bytes(self) -> int:
        """Bytes of the temporary files of keys, numbers and edges."""
        files = [file for end in self.ends for file in chain.from_iterable(end.files())]
        edges = sum(file.edge_bytes for file in files) // len(self.ends)
        collected = sum(file.keys.num_bytes + 8 * file.keys.num_keys for file in files)
        return edges + collected + sum(KeyTable.load(end.table_path).num_bytes for end in self.ends)

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        return (chunk for chunk, _ in self.read_kinds(span))

    def read_kinds(self, span: SourceRange) -> Iterator[tuple[EdgeChunk, NDArray[np.int32]]]:
        """Read one range, with the (num_edges,) int32 kind of each edge."""
        with OpenFiles(self.work) as opened:
            # Both ends of an edge are in the same file of the same range.
            for found in zip(*(end.read(self.work, span.file, opened) for end in self.ends), strict=True):
                (file, of_sources), of_targets = found[0], found[-1][1]
                for start in range(0, file.num_edges, self.chunk_edges):
                    stop = min(start + self.chunk_edges, file.num_edges)
                    source, target = file.read_ends(opened, start, stop)
                    ends, values = (of_sources[source], of_targets[target]), file.read_values(opened, start, stop)
                    kinds = file.read_kinds(opened, start, stop)
                    yield EdgeChunk.valued(*ends, values, times=file.has_times), kinds


@dataclass(frozen=True)
class KnownEdges(NumberedEdges):
    """Numbered edges, without edges whose ends have no number."""

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        for chunk in super().read(span):
            is_known = (chunk.source >= 0) & (chunk.target >= 0)
            if is_known.all():
                yield chunk
            elif is_known.any():
                values = None if chunk.values is None else chunk.values[is_known]
                ends = chunk.source[is_known], chunk.target[is_known]
                yield EdgeChunk.valued(*ends, values, times=chunk.time is not None)
