"""First step: every range of the source leaves files of the sorted distinct keys of some edges, and these edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, LaneWriter, writable
from gnnloom.pipeline.ingest.keys.blocks import KeyBlock, KeyFile
from gnnloom.pipeline.ingest.keys.key_types import KEY_TYPES, KeyType, sort_memory
from gnnloom.pipeline.sources.source import EdgeSource, SourceRange
from gnnloom.pipeline.tasks.memory import gathered_memory
from gnnloom.pipeline.tasks.phase import Task
from gnnloom.pipeline.tasks.progress import Done
from gnnloom.storage.errors import InputError

#: Keys that each file contributes to the sample that cuts the ranges of keys. With 64 from each of F files, a range is
#: off its intended size by about 1/sqrt(64 F) of all keys.
SAMPLES = 64

#: Bytes of memory of an edge: the positions of its ends, twice, and its weight or time.
EDGE_MEMORY = 24


def file_edges(memory: int, ids: str, name_bytes: float = 0.0) -> int:
    """Edges whose keys are collected in one file at least, unless it is the last of a range, by such a worker.

    Args:
        ids: type of the keys.
        name_bytes: average bytes of a name.
    """
    many = 1 << 20
    # Of many edges, because the average name need not have a whole number of bytes.
    counts = (2 * many, int(2 * many * name_bytes))[: len(KEY_TYPES[ids].widths)]
    return max(1, gathered_memory(memory) * many // (sort_memory(KEY_TYPES[ids], counts) + EDGE_MEMORY * many))


@dataclass(frozen=True)
class CollectKeysTask(Task):
    """Collects the keys of one range of the source.

    Attributes:
        ids: type of the keys, in :data:`~gnnloom.pipeline.ingest.keys.key_types.KEY_TYPES`.
        memory: bytes that the worker may use.
        lane: where the files go, relative to the work folder.
    """

    source: EdgeSource
    range: SourceRange
    ids: str
    memory: int
    lane: Lane


def check_values(value_bytes: Sequence[int]) -> None:
    """Raise InputError if only some of the edges have a weight."""
    if len(set(value_bytes)) > 1:
        raise InputError("some edges of the source have a weight and some have none")


def collect_range(task: CollectKeysTask) -> Done:
    """Write the files of one range; returns its number of edges.

    Raises:
        InputError: the source cannot be read, or an id is negative.
    """
    keys = KEY_TYPES[task.ids]
    with task.writer.task(task.name) as output, writable(task.writer.work, task.lane) as lane:
        files: list[KeyFile] = []
        samples: list[Any] = []
        for growing in _filled(task, keys):
            distinct, positions = keys.distinct(growing.parts)
            file = growing.write(lane, task.lane, files[-1].stop if files else 0, keys.arrays(distinct), positions)
            step = max(1, file.keys.num_keys // SAMPLES)
            samples += [keys.to_json(distinct, number) for number in range(0, file.keys.num_keys, step)]
            files.append(file)
        output.facts = {
            "lane": task.lane.to_json(),
            "bytes": files[-1].stop if files else 0,
            "files": [file.to_json() for file in files],
            "samples": samples,
        }
    return Done(sum(file.num_edges for file in files))


def _filled(task: CollectKeysTask, keys: KeyType[Any]) -> Iterator[_GrowingFile]:
    """The keys and edges of the range, as many at a time as fit in memory."""
    limit = gathered_memory(task.memory)
    step = max(1, limit // (EDGE_MEMORY + 2 * keys.memory[0]))
    growing = _GrowingFile()
    for whole in keys.chunks(task.source, task.range):
        for start in range(0, len(whole.source), step):
            chunk = whole[start : start + step]
            part, ends = keys.gathered(chunk)
            memory = sort_memory(keys, tuple(map(len, keys.arrays(part)))) + EDGE_MEMORY * len(chunk.source)
            if growing.parts and growing.memory + memory > limit:
                yield growing
                growing = _GrowingFile()
            growing.add(part, ends, chunk.weight, chunk.time, memory)
    if growing.parts:
        yield growing


@dataclass
class _GrowingFile:
    """What the next file will hold: the keys of each piece, and the ends of its edges as positions among them."""

    parts: list[Any] = field(default_factory=list)
    ends: list[NDArray[np.int32]] = field(default_factory=list)
    values: list[NDArray[Any] | None] = field(default_factory=list)
    memory: int = 0

    def add(
        self,
        part: Any,
        ends: NDArray[np.int32],
        weight: NDArray[np.float32] | None,
        time: NDArray[np.float64] | None,
        memory: int,
    ) -> None:
        self.parts.append(part)
        self.ends.append(ends)
        # A copy, because the values may be a view of a longer buffer, which would stay in memory.
        given, dtype = (weight, np.float32) if time is None else (time, np.float64)
        self.values.append(None if given is None else np.array(given, dtype))
        self.memory += memory

    def write(
        self, opened: LaneWriter, lane: Lane, start: int, arrays: Sequence[NDArray[Any]], positions: NDArray[np.int32]
    ) -> KeyFile:
        """Write the file, given the stored arrays of its distinct keys and the position of every key among them."""
        values = [value for value in self.values if value is not None]
        check_values([0 if value is None else value.itemsize for value in self.values])
        block = KeyBlock.write(opened, lane, start, arrays)
        first = np.cumsum([0, *map(len, self.parts)])
        ends = [positions[begin:][pair] for begin, pair in zip(first, self.ends, strict=False)]
        end = block.stop
        for column in (*(pair[0] for pair in ends), *(pair[1] for pair in ends), *values):
            end = opened.write(end, column)
        return KeyFile(block, sum(pair.shape[1] for pair in ends), values[0].itemsize if values else 0)
