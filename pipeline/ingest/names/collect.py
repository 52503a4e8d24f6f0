"""First step for names as ids: every range of the source leaves runs of its distinct names, sorted, and its edges.

A run is as many edges as fit the memory.  Arrow finds the distinct names of each chunk, then sorts those of the run.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.spill import write_file
from gnnloom.pipeline.ingest.names.sorted_runs import NameRun
from gnnloom.pipeline.sources.names import NameChunk, NamedEdgeSource, Names
from gnnloom.pipeline.sources.source import SourceRange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.progress import Done, logged
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord

#: Names that a run gives to the sample which cuts the ranges of names, and bytes of each that count.
SAMPLES, SAMPLE_BYTES = 64, 64

#: What a distinct name takes in memory beside its bytes, about: offsets, places, the table that finds it again.
NAME_MEMORY = 64


@dataclass(frozen=True)
class CollectTask:
    """Collects the names of one range of the source."""

    writer: ArtifactWriter
    number: int
    source: NamedEdgeSource
    part: SourceRange
    memory: int

    @property
    def name(self) -> str:
        return f"names/{self.number:05d}"


def collect_names(writer: ArtifactWriter, source: NamedEdgeSource, cluster: Cluster) -> list[TaskRecord]:
    """Collect the names of the ranges that were not yet; returns the records of all, in the order of the source.

    Raises:
        InputError: the source's; or only some edges have a weight; or a header was read as an edge.
    """
    ranges = source.ranges()
    tasks = [CollectTask(writer, number, source, part, cluster.memory) for number, part in enumerate(ranges)]
    recorded = writer.recorded("names/")
    missing = [task for task in tasks if not _is_usable(task, recorded.get(task.name))]
    for _ in logged("names", cluster.map(collect_range, missing), len(missing)):
        pass
    recorded = writer.recorded("names/")
    records = [recorded[task.name] for task in tasks]
    _check(source, [record.facts for record in records])
    return records


def _is_usable(task: CollectTask, record: TaskRecord | None) -> bool:
    part = task.part
    return (
        record is not None
        and record.facts["range"] == [part.file, part.start, part.stop]
        and all(NameRun.from_json(run).is_intact(task.writer.work) for run in record.facts["runs"])
    )


def _check(source: NamedEdgeSource, facts: Sequence[Mapping[str, Any]]) -> None:
    edges, plain = sum(fact["edges"] for fact in facts), sum(fact["plain"] for fact in facts)
    if not edges:
        raise InputError("the source has no edges")
    if len({run["weighted"] for fact in facts for run in fact["runs"]}) > 1:
        raise InputError("some edges of the source have a weight and some have none")
    headers = [fact["range"][0] for fact in facts if fact["range"][1] == 0 and not fact["first_is_plain"]]
    if source.may_begin_with_header and plain and headers and edges - plain == len(headers):
        files = source.identity().get("files", [])
        name = files[headers[0]]["name"] if headers[0] < len(files) else "the source"
        raise InputError(
            f"{name}: only the first line holds ids that are no numbers; if it names the columns, say so (`--header`);"
            " if it is an edge, and all ids are names, say that (`--no-header`)"
        )


def collect_range(task: CollectTask) -> Done:
    """Write the runs of one range; returns its number of edges.

    Raises:
        InputError: the source's.
    """
    with task.writer.task(task.name) as output:
        run = _RunBuilder()
        runs: list[NameRun] = []
        samples: list[bytes] = []
        edges = plain = 0
        first_is_plain: bool | None = None
        limit = working_memory(task.memory) // 16
        for chunk in task.source.read_names(task.part):
            if not len(chunk.source):
                continue
            first_is_plain = chunk.first_is_plain if first_is_plain is None else first_is_plain
            edges, plain = edges + len(chunk.source), plain + chunk.num_plain
            run.add(chunk)
            if run.memory > limit:
                _add_run(task, run, runs, samples)
                run = _RunBuilder()
        if run.num_edges:
            _add_run(task, run, runs, samples)
        output.facts = {
            "range": [task.part.file, task.part.start, task.part.stop],
            "edges": edges,
            "plain": plain,
            "first_is_plain": bool(first_is_plain),
            "runs": [run.to_json() for run in runs],
            "samples": [sample.hex() for sample in samples],
        }
    return Done(edges)


def _add_run(task: CollectTask, builder: _RunBuilder, runs: list[NameRun], samples: list[bytes]) -> None:
    names, places = sorted_distinct(builder.distinct)
    runs.append(builder.write(task, names, places))
    step = max(1, len(names) // SAMPLES)
    samples += [names.name(number)[:SAMPLE_BYTES] for number in range(0, len(names), step)]


@dataclass
class _RunBuilder:
    """A run while it grows: per chunk its distinct names and the places of its edges' ends among them."""

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
            self.weights.append(chunk.weight.copy())
        self.num_edges += len(chunk.source)
        self.memory += encoded.dictionary.nbytes + NAME_MEMORY * len(encoded.dictionary) + 12 * len(chunk.source)

    def write(self, task: CollectTask, names: Names, places: NDArray[np.int32]) -> NameRun:
        """Write the run; ``names`` and ``places`` are those of :func:`sorted_distinct`."""
        path = f"names/{task.number:05d}-{uuid.uuid4().hex}"
        run = NameRun(path, len(names), len(names.text), self.num_edges, bool(self.weights))
        ends = list(self._placed(places))
        columns = [*(pair[0] for pair in ends), *(pair[1] for pair in ends), *self.weights]
        write_file(task.writer.work / run.path, [names.offset, names.text, *columns])
        with (task.writer.work / run.numbers_path).open("wb") as file:
            file.truncate(8 * run.num_names)
        return run

    def _placed(self, places: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
        """The ends of each chunk's edges as places among the names of the run."""
        first = 0
        for distinct, ends in zip(self.distinct, self.ends, strict=True):
            yield places[first : first + len(distinct)][ends]
            first += len(distinct)


def sorted_distinct(arrays: Sequence[Any]) -> tuple[Names, NDArray[np.int32]]:
    """The distinct names of some of Arrow's large binary arrays, ascending, and the place of every name among them."""
    import pyarrow as pa  # noqa: PLC0415 - only names need it
    import pyarrow.compute as pc  # noqa: PLC0415

    encoded = pa.concat_arrays(arrays).dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary)
    place = np.empty(len(order), np.int32)
    place[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
    return Names.from_arrow(encoded.dictionary.take(order)), place[encoded.indices.to_numpy()]
