"""First step: every range of the source leaves files of the sorted distinct keys of some edges, and these edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, LaneWriter, writable
from gnnloom.pipeline.ingest.keys.blocks import KeyBlock, KeyFile
from gnnloom.pipeline.ingest.keys.key_types import KEY_TYPES, KeyType, read_chunks, sort_memory
from gnnloom.pipeline.ingest.keys.kinds import KindColumn, with_kinds
from gnnloom.pipeline.sources.names import NameChunk
from gnnloom.pipeline.sources.source import EdgeChunk, EdgeSource, SourceRange
from gnnloom.pipeline.tasks.memory import gathered_memory
from gnnloom.pipeline.tasks.phase import Task
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.errors import InputError
from gnnloom.storage.meters import Done

#: Keys that each file contributes to the sample that cuts the ranges of keys. With 64 from each of F files, a range is
#: off its intended size by about 1/sqrt(64 F) of all keys.
SAMPLES = 64

#: Bytes of memory of an edge: the positions of its ends, twice, and its weight or time.
EDGE_MEMORY = 24


def file_edges(memory: int, ids: str, name_bytes: float = 0.0, scratch: Scratch = BESIDE) -> int:
    """Edges whose keys are collected in one file at least, unless it is the last of a range, by such a worker.

    Args:
        ids: type of the keys.
        name_bytes: average bytes of a name.
        scratch: bytes that are gathered, if not the memory decides that.
    """
    many = 1 << 20
    # Of many edges, because the average name need not have a whole number of bytes.
    counts = (2 * many, int(2 * many * name_bytes))[: len(KEY_TYPES[ids].widths)]
    gathered = scratch.gathered_bytes or gathered_memory(memory)
    return max(1, gathered * many // (sort_memory(KEY_TYPES[ids], counts) + EDGE_MEMORY * many))


@dataclass(frozen=True)
class CollectKeysTask(Task):
    """Collects the keys of one range of the source.

    Attributes:
        ids: types of the keys, in :data:`~gnnloom.pipeline.ingest.keys.key_types.KEY_TYPES`: one if both ends of an
            edge have keys of one type, otherwise the type of the sources' keys and of the targets' keys.
        memory: bytes that the worker may use.
        lane: where the files go, relative to the work folder.
        is_list: the source is a list of vertices, read as edges from each vertex to itself; only the keys are kept.
        kinds: the kind of each row of the source. Each file of a list then has the keys of one kind.
    """

    source: EdgeSource
    range: SourceRange
    ids: tuple[str, ...]
    memory: int
    lane: Lane
    is_list: bool = False
    kinds: KindColumn | None = None


def fact_names(table: int) -> tuple[str, str]:
    """Names of the facts with the files of a table of keys, and with its samples: the only table, or the second."""
    return ("target_files", "target_samples") if table else ("files", "samples")


def check_values(value_bytes: Sequence[int]) -> None:
    """Raise InputError if only some of the edges have a weight."""
    if len(set(value_bytes)) > 1:
        raise InputError("some edges of the source have a weight and some have none")


def collect_range(task: CollectKeysTask) -> Done:
    """Write the files of one range; returns its number of edges.

    Raises:
        InputError: the source cannot be read, or an id is negative.
    """
    tables = [KEY_TYPES[ids] for ids in task.ids]
    edges = 0
    with task.writer.task(task.name) as output, writable(task.writer.work, task.lane) as lane:
        facts: dict[str, Any] = {"lane": task.lane.to_json(), "bytes": 0}
        for name in (name for table in range(len(tables)) for name in fact_names(table)):
            facts[name] = []
        for growing in _filled(task, tables):
            edges += growing.num_edges
            distinct = [keys.distinct(parts) for keys, parts in zip(tables, growing.parts, strict=True)]
            if task.is_list and task.kinds is not None:
                _write_by_kind(task, growing, tables[0], distinct[0], lane, facts)
                continue
            arrays = [keys.arrays(found) for keys, (found, _) in zip(tables, distinct, strict=True)]
            files = growing.write(lane, task.lane, facts["bytes"], arrays, [positions for _, positions in distinct])
            for table, (keys, file, (found, _)) in enumerate(zip(tables, files, distinct, strict=True)):
                _record_file(facts, table, keys, file, found)
            facts["bytes"] = files[-1].stop
        # Number of times that a list names its vertices.
        output.facts = facts | ({"rows": edges} if task.is_list else {})
    return Done(edges)


def _record_file(facts: dict[str, Any], table: int, keys: KeyType[Any], file: KeyFile, found: Any) -> None:
    """Record a file and a sample of its keys."""
    step = max(1, file.keys.num_keys // SAMPLES)
    of_files, of_samples = fact_names(table)
    facts[of_files].append(file.to_json())
    facts[of_samples] += [keys.to_json(found, number) for number in range(0, file.keys.num_keys, step)]


def _write_by_kind(
    task: CollectKeysTask,
    growing: _GrowingFile,
    keys: KeyType[Any],
    distinct: tuple[Any, NDArray[np.int32]],
    opened: LaneWriter,
    facts: dict[str, Any],
) -> None:
    """Write the keys of a list as a file for each kind; records the files, and their kinds.

    Raises:
        InputError: two rows with one id have different kinds.
    """
    found, positions = distinct
    first = np.cumsum([0, *map(len, growing.parts[0])])
    pieces = zip(first, growing.ends[0], strict=False)
    rows = np.concatenate([positions[begin:][ends[0]] for begin, ends in pieces])
    given, kinds = np.concatenate(growing.kinds), np.empty(int(rows.max()) + 1, np.int32)
    # The first row of a key counts, as assignments of earlier rows come last.
    kinds[rows[::-1]] = given[::-1]
    takes_first = task.kinds is not None and task.kinds.takes_first
    if not takes_first and (differs := kinds[rows] != given).any():
        at = int(np.argmax(differs))
        key = keys.key(found, int(rows[at]))
        name = key.decode(errors="backslashreplace") if isinstance(key, bytes) else str(key)
        raise conflicting_kinds(task.source, task.range, task.kinds, name, int(kinds[rows[at]]), int(given[at]))
    for kind in np.unique(kinds).tolist():
        chosen = keys.chosen(found, kinds == kind)
        block = KeyBlock.write(opened, task.lane, facts["bytes"], keys.arrays(chosen))
        _record_file(facts, 0, keys, KeyFile(block, 0, 0, block.stop), chosen)
        facts.setdefault("kinds", []).append(kind)
        facts["bytes"] = block.stop


def conflicting_kinds(
    source: EdgeSource, span: SourceRange, kinds: KindColumn | None, name: str, first: int, second: int
) -> InputError:
    """The error for a vertex that has two types."""
    names, location = ((), "") if kinds is None or kinds.names is None else (kinds.names, kinds.location)
    types = f"{names[first]} and {names[second]}" if names else "two"
    hint = getattr(source, "several_hint", "") or (kinds.hint if kinds is not None else "")
    reason = f"vertex {name!r} has the types {types} in different rows; a vertex has one type{hint}"
    finds = getattr(source, "id_error", None)
    found: InputError | None = None if finds is None else finds(span, name, (0,), reason)
    return found or InputError(f"{location}: {reason}")


def _rows(task: CollectKeysTask) -> Iterator[tuple[EdgeChunk | NameChunk, NDArray[np.int32] | None]]:
    """The rows of the range, and their kinds."""
    chunks = read_chunks(task.source, task.range, task.ids)
    if task.kinds is None:
        return ((chunk, None) for chunk in chunks)
    return with_kinds(chunks, task.kinds.read(task.range), task.kinds.location)


def _filled(task: CollectKeysTask, tables: Sequence[KeyType[Any]]) -> Iterator[_GrowingFile]:
    """The keys and edges of the range, in pieces that fit in memory."""
    limit = task.writer.scratch.gathered_bytes or gathered_memory(task.memory)
    step = max(1, limit // (EDGE_MEMORY + tables[0].memory[0] + tables[-1].memory[0]))
    growing = _GrowingFile.empty(len(tables), is_list=task.is_list)
    for whole, kinds in _rows(task):
        for start in range(0, len(whole.source), step):
            chunk = whole[start : start + step]
            ends = [chunk.source] if task.is_list else [chunk.source, chunk.target]
            sides = [ends] if len(tables) == 1 else [[end] for end in ends]
            found = [keys.gathered(side) for keys, side in zip(tables, sides, strict=True)]
            memory = (EDGE_MEMORY + 4 * (kinds is not None)) * len(chunk.source) + sum(
                sort_memory(keys, tuple(map(len, keys.arrays(part))))
                for keys, (part, _) in zip(tables, found, strict=True)
            )
            if growing.num_edges and growing.memory + memory > limit:
                yield growing
                growing = _GrowingFile.empty(len(tables), is_list=task.is_list)
            of_chunk = None if kinds is None else kinds[start : start + step]
            growing.add(found, len(chunk.source), chunk.weight, chunk.time, of_chunk, memory)
    if growing.num_edges:
        yield growing


@dataclass
class _GrowingFile:
    """Content of the next file: the keys of each table's pieces, and its edges' ends as positions among the keys.

    Attributes:
        parts: for each table, the keys of each piece.
        ends: for each table, (num_ends, num_edges) positions of each piece.
        values: weights or times of each piece.
        is_list: only keys are kept.
        kinds: kinds of the rows of each piece, if they have kinds.
    """

    parts: list[list[Any]]
    ends: list[list[NDArray[np.int32]]]
    values: list[NDArray[Any] | None] = field(default_factory=list)
    num_edges: int = 0
    memory: int = 0
    is_list: bool = False
    kinds: list[NDArray[np.int32]] = field(default_factory=list)

    @classmethod
    def empty(cls, tables: int, *, is_list: bool) -> _GrowingFile:
        return cls([[] for _ in range(tables)], [[] for _ in range(tables)], is_list=is_list)

    def add(
        self,
        found: Sequence[tuple[Any, NDArray[np.int32]]],
        num_edges: int,
        weight: NDArray[np.float32] | None,
        time: NDArray[np.float64] | None,
        kinds: NDArray[np.int32] | None,
        memory: int,
    ) -> None:
        """Add a piece; ``found`` has the keys of each table, and the ends of the edges as positions among them."""
        for table, (part, ends) in enumerate(found):
            self.parts[table].append(part)
            self.ends[table].append(ends)
        # A copy, because the values may be a view of a longer buffer, which would stay in memory.
        given, dtype = (weight, np.float32) if time is None else (time, np.float64)
        self.values.append(None if given is None or self.is_list else np.array(given, dtype))
        self.kinds += [] if kinds is None else [np.array(kinds, np.int32)]
        self.num_edges += num_edges
        self.memory += memory

    def write(
        self,
        opened: LaneWriter,
        lane: Lane,
        start: int,
        arrays: Sequence[Sequence[NDArray[Any]]],
        positions: Sequence[NDArray[np.int32]],
    ) -> list[KeyFile]:
        """Write the file from a byte of the lane on; returns it as it looks to each table.

        Args:
            arrays: of each table, the arrays of its distinct keys.
            positions: of each table, the position of every key among the distinct ones.
        """
        values = [value for value in self.values if value is not None]
        check_values([0 if value is None else value.itemsize for value in self.values])
        blocks: list[KeyBlock] = []
        for each in arrays:
            blocks.append(KeyBlock.write(opened, lane, blocks[-1].stop if blocks else start, each))
        end = blocks[-1].stop
        if self.is_list:
            return [KeyFile(block, 0, 0, end) for block in blocks]
        ends: list[NDArray[np.int32]] = []
        for table, places in enumerate(positions):
            first = np.cumsum([0, *map(len, self.parts[table])])
            pieces = [places[begin:][pair] for begin, pair in zip(first, self.ends[table], strict=False)]
            ends += [piece[column] for column in range(len(pieces[0])) for piece in pieces]
        for column in (*ends, *values, *self.kinds):
            end = opened.write(end, column)
        value_bytes, kind_bytes = values[0].itemsize if values else 0, 4 if self.kinds else 0
        return [KeyFile(block, self.num_edges, value_bytes, blocks[-1].stop, kind_bytes) for block in blocks]
