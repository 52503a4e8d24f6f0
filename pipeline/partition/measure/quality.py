"""The figures that describe a partition, all measured on the stored graph by a plan, which runs or is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.partition.measure.balance import asked_limit
from gnnloom.pipeline.partition.measure.cover import cover_phases, read_cover
from gnnloom.pipeline.partition.measure.volume import CountBuffers, PartExchange, exchange_phase, read_exchange
from gnnloom.pipeline.partition.model.hypergraph import row_weights
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.mapped_vectors import map_vector
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Needs, Phase, run
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.disk.groups import write_group
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, TaskOutput
from gnnloom.storage.shards.block_ranges import RANGE_BYTES, row_ranges

#: Up to this many parts, the manifest holds the matrix of rows exchanged: 65,536 numbers, a few hundred KB of JSON.
MATRIX_PARTS = 256
#: Sums of each part: the nonzeros, the number and the weight of its rows.
_SUMS = ("nonzeros", "vertices", "weight")
#: Prefix of the names of further sums: the vertices of each type.
_OF_TYPE = "vertices "


@dataclass(frozen=True)
class Load:
    """The work and size of the parts.

    Attributes:
        nonzeros: (P,) int64 nonzeros of each part's rows.
        vertices: (P,) int64 vertices of each part.
        weight: (P,) int64 weight of each part for the balance.
        heaviest: weight of the heaviest row.
        types: (P,) int64 vertices of each type in each part, by type; empty for a graph without types.
    """

    nonzeros: NDArray[np.int64]
    vertices: NDArray[np.int64]
    weight: NDArray[np.int64]
    heaviest: int
    types: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)


@dataclass(frozen=True)
class _LoadTask:
    """Sums up the rows of a block.

    Attributes:
        part_path: mapped vector of the (num_vertices,) int32 parts.
        sums: of the rows of every part, by part.
        lane: where the task writes them.
    """

    writer: ArtifactWriter
    graph_path: Path
    part_path: Path
    weights: str
    block: int
    sums: Shuffle
    lane: Lane
    needs: Needs

    @property
    def name(self) -> str:
        return _load_name(self.block)


def load_phase(
    writer: ArtifactWriter,
    graph_path: Path,
    part_path: Path,
    sizes: GraphSizes,
    num_parts: int,
    weights: str,
    types: Sequence[str] = (),
) -> Phase:
    """The phase that sums up the rows of every part, with one task for each row block.

    Args:
        part_path: mapped vector of the (num_vertices,) int32 parts.
        weights: weights of the rows; see :func:`gnnloom.pipeline.partition.model.hypergraph.row_weights`.
        types: names of the types of a graph with types.
    """
    plan = ShufflePlan.unmerged(writer, _load_shuffle(num_parts, types), sizes.num_blocks)
    tasks = []
    for block, rows in enumerate(sizes.block_rows):
        # Row pointers, and the part of every row.
        read, written = 8 * (rows + 1) + 4 * rows, 8 * (len(_SUMS) + len(types)) * num_parts
        needs = Needs(read, written, opens=1, memory=2 * RANGE_BYTES + written + 4 * sizes.num_vertices)
        where = (writer, graph_path, part_path, weights, block, plan.shuffle, plan.lane(block))
        tasks.append(_LoadTask(*where, needs))
    return Phase("measure load", _measure_block, tasks, "rows", files=(plan.files,))


def read_load(writer: ArtifactWriter, num_blocks: int, num_parts: int, types: Sequence[str] = ()) -> Load:
    """Read what :func:`load_phase` measured."""
    shuffle = _load_shuffle(num_parts, types)
    sums = np.zeros((len(shuffle.columns), num_parts), dtype=np.int64)
    with OpenFiles(writer.work) as files:
        for section in shuffle.rows(writer.work, files).sections(0, num_parts):
            sums += np.stack([section.read(column.name) for column in shuffle.columns])
    nonzeros, vertices, weight, *of_types = sums
    records = writer.recorded_of(map(_load_name, range(num_blocks))).values()
    heaviest = max(record.facts["heaviest"] for record in records)
    return Load(nonzeros, vertices, weight, heaviest, dict(zip(types, of_types, strict=True)))


def _load_name(block: int) -> str:
    return f"parts/load/{block:05d}"


def _load_shuffle(num_parts: int, types: Sequence[str] = ()) -> Shuffle:
    """The sums of the rows of every part, by part; the client reads all sums."""
    names = *_SUMS, *(f"{_OF_TYPE}{each}" for each in types)
    return Shuffle("parts/load", num_parts, tuple(Column(name, "int64") for name in names), 1)


def _measure_block(task: _LoadTask) -> int:
    """Sum up the rows of a block; returns their number."""
    part, num_parts, graph = map_vector(task.part_path), task.sums.num_positions, Graph(Artifact(task.graph_path))
    with task.writer.task(task.name) as output, task.sums.routed(output, task.lane) as out:
        names = [column.name for column in task.sums.columns]
        sums, heaviest = np.zeros((len(names), num_parts), dtype=np.int64), 0
        for rows in row_ranges(graph, task.block, task.writer.scratch.range_rows):
            first, count = rows.first, len(rows.nonzeros)
            nonzeros = graph.row_entries(first, rows.nonzeros)
            weight = row_weights(graph, first, rows.nonzeros, task.weights)
            of_rows = part[first : first + count].astype(np.intp)
            # ``bincount`` with weights would sum in float64, which is exact only up to 2^53.
            for total, each in zip(sums, (nonzeros, np.ones_like(nonzeros), weight), strict=False):
                np.add.at(total, of_rows, each)
            for number, (start, stop) in enumerate(graph.type_spans.values(), len(_SUMS)):
                of_type = of_rows[max(0, start - first) : max(0, stop - first)]
                sums[number] += np.bincount(of_type, minlength=num_parts)
            heaviest = max(heaviest, int(weight.max(initial=0)))
        out.add(Index.of_positions(np.arange(num_parts)), dict(zip(names, sums, strict=True)))
        output.facts["heaviest"] = heaviest
    return int(sums[1].sum())


def describe_quality(
    method: str, imbalance: float, load: Load, forward: PartExchange, backward: PartExchange | None
) -> dict[str, Any]:
    """The figures of a partition as JSON.

    Args:
        imbalance: the imbalance that was asked for.
        forward: rows exchanged for A H.
        backward: rows exchanged for the product with the transpose; None if that is the same.

    Returns:
        ``km1`` and ``volume_total`` (rows sent by all parts), ``volume_avg`` and ``volume_max`` (per part),
        ``receive_volume_max``, ``messages_avg`` and ``messages_max`` (parts that a part sends to), ``load_avg`` and
        ``load_max`` (nonzeros per part), ``imbalance`` (highest load over the average, less 1), ``imbalance_bound``
        (the limit on the weights of parts: the imbalance asked for, in whole weights, or what the heaviest row
        forces), ``weight_imbalance`` (imbalance of the weights, if the weights are not nonzeros), ``vertices_min`` and
        ``vertices_max`` (per part); for directed graphs also ``volume_backward_total`` and so on. Where the exchange
        of rows and partial sums is counted, :func:`record_quality` adds ``volume_cover_total`` and so on.

        Lists with a number for each part: ``volume_per_part``, ``receive_volume_per_part``, ``messages_per_part``,
        ``receive_messages_per_part``, ``load_per_part`` and ``vertices_per_part``.  For a graph with types, the
        load counts the edges of all relations, and ``vertices_per_type`` has a list for each type.  Up to
        ``MATRIX_PARTS`` parts also ``volume_matrix``: the rows that part [p] sends to part [q].
    """
    num_parts = len(load.nonzeros)
    limit = max(asked_limit(int(load.weight.sum()), num_parts, imbalance), load.heaviest)
    quality = {
        "parts": num_parts,
        "method": method,
        "km1": forward.total,
        "load_max": int(load.nonzeros.max()),
        "load_avg": int(load.nonzeros.sum()) / num_parts,
        "imbalance": _excess(int(load.nonzeros.max()), load.nonzeros),
        "imbalance_bound": _excess(limit, load.weight),
        "vertices_min": int(load.vertices.min()),
        "vertices_max": int(load.vertices.max()),
        "load_per_part": load.nonzeros.tolist(),
        "vertices_per_part": load.vertices.tolist(),
        **_describe_exchange("", forward),
    }
    if load.types:
        quality["vertices_per_type"] = {name: each.tolist() for name, each in load.types.items()}
    if (load.weight != load.nonzeros).any():
        quality["weight_imbalance"] = _excess(int(load.weight.max()), load.weight)
    return quality if backward is None else quality | _describe_exchange("backward_", backward)


def _excess(heaviest: int, weight: NDArray[np.int64]) -> float:
    """The share by which the heaviest part exceeds the average of ``weight``, (P,) int64."""
    total = int(weight.sum())
    return heaviest * len(weight) / total - 1 if total else 0.0


def _describe_exchange(direction: str, exchange: PartExchange) -> dict[str, Any]:
    sent, received, messages = exchange.sent(), exchange.received(), exchange.messages()
    figures: dict[str, Any] = {
        f"volume_{direction}total": exchange.total,
        f"volume_{direction}avg": exchange.total / exchange.num_parts,
        f"volume_{direction}max": int(sent.max()),
        f"receive_volume_{direction}max": int(received.max()),
        f"messages_{direction}total": int(messages.sum()),
        f"messages_{direction}avg": int(messages.sum()) / exchange.num_parts,
        f"messages_{direction}max": int(messages.max()),
        f"volume_{direction}per_part": sent.tolist(),
        f"receive_volume_{direction}per_part": received.tolist(),
        f"messages_{direction}per_part": messages.tolist(),
        f"receive_messages_{direction}per_part": exchange.messages_received().tolist(),
    }
    if exchange.num_parts <= MATRIX_PARTS:
        figures[f"volume_{direction}matrix"] = exchange.matrix().tolist()
    return figures


@dataclass(frozen=True)
class MeasurePlan:
    """Plan for measuring parts; the defaults are for plans that are counted and not run.

    Attributes:
        graph: sizes of the graph.
        transpose: sizes of its transpose; the graph's sizes if it is undirected.
        num_parts: number of parts P.
        memory: bytes that a worker may use.
        weights: what the load of a part counts.
        writer: of the artifact that the figures describe; finished tasks leave their records there.
        part_path: mapped vector of the (num_vertices,) int32 parts.
        graph_path, transpose_path: artifacts of the graph and its transpose.
        covers: count also the rows and sums of an exchange that covers the blocks between parts.
        types: names of the types of a graph with types.
    """

    graph: GraphSizes
    transpose: GraphSizes
    num_parts: int
    memory: int
    weights: str = "nonzeros"
    writer: ArtifactWriter = field(default_factory=lambda: ArtifactWriter(Path(), "partition", ""))
    part_path: Path = Path()
    graph_path: Path = Path()
    transpose_path: Path = Path()
    covers: bool = False
    types: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        graph: Graph,
        transpose: Graph,
        parts: int,
        memory: int,
        weights: str,
        writer: ArtifactWriter,
        path: Path,
        *,
        covers: bool = False,
    ) -> MeasurePlan:
        """The plan for a stored graph and a mapped vector of parts."""
        paths = writer, path, graph.artifact.path, transpose.artifact.path
        return cls(
            GraphSizes.of(graph),
            GraphSizes.of(transpose),
            parts,
            memory,
            weights,
            *paths,
            covers,
            tuple(graph.type_spans),
        )

    def phases(self) -> list[Phase]:
        """The phases that measure the parts; a single part has nothing to measure."""
        if self.num_parts == 1:
            return []
        # Row j of the transpose lists the vertices that gather from j, whose parts need the row of j in a forward pass.
        products = [("forward", self.transpose_path, self.transpose)]
        if not self.graph.symmetric:
            products.append(("backward", self.graph_path, self.graph))
        buffers, where = CountBuffers(self.num_parts, self.memory), (self.writer, self.graph_path, self.part_path)
        return [
            *(
                exchange_phase(self.writer, path, self.part_path, sizes, buffers, name)
                for name, path, sizes in products
            ),
            load_phase(*where, self.graph, self.num_parts, self.weights, self.types),
            *(self._cover_phases() if self.covers else []),
        ]

    def _cover_phases(self) -> list[Phase]:
        return cover_phases(self.writer, self.graph_path, self.part_path, self.graph, self.num_parts, self.memory)


def record_quality(output: TaskOutput, plan: MeasurePlan, cluster: Cluster, method: str, imbalance: float) -> None:
    """Count what the parts exchange on the real matrix, and record it as facts and, for many parts, arrays.

    Args:
        method: that made the partition.
        imbalance: that was allowed.
    """
    writer, parts = output.writer, plan.num_parts
    if parts == 1:
        load, forward = _load_of_all(plan), PartExchange.nothing(1)
        backward = None if plan.graph.symmetric else forward
    else:
        run(plan.phases(), cluster, writer)
        forward = read_exchange(writer, "forward", parts)
        backward = None if plan.graph.symmetric else read_exchange(writer, "backward", parts)
        load = read_load(writer, plan.graph.num_blocks, parts, plan.types)
    output.facts = describe_quality(method, imbalance, load, forward, backward)
    if plan.covers:
        cover = read_cover(writer, parts) if parts > 1 else forward
        output.facts |= _describe_exchange("cover_", cover)
        # The covers of transposed blocks have the same sizes, and rows are sent in the other direction.
        output.facts |= {} if backward is None else _describe_exchange("cover_backward_", cover.transposed)
    if parts > MATRIX_PARTS:
        for direction, exchange in (("forward", forward), ("backward", backward)):
            if exchange is not None:
                _store_exchange(output, direction, exchange)


def _load_of_all(plan: MeasurePlan) -> Load:
    """The load of a single part, from the counts of the graph: no other part can weigh more or less."""
    graph = Graph(Artifact(plan.graph_path))
    nonzeros, vertices = np.array([graph.entries]), np.array([graph.num_vertices])
    weight = nonzeros if plan.weights == "nonzeros" else vertices
    types = {name: np.array([stop - start]) for name, (start, stop) in graph.type_spans.items()}
    # No row is heavier than all rows together.
    return Load(nonzeros, vertices, weight, int(weight.max()), types)


def _store_exchange(output: TaskOutput, direction: str, exchange: PartExchange) -> None:
    """Store the rows that each pair of parts exchanges as arrays, because they would make the manifest too large."""
    path = output.writer.path
    write_group(path / "exchange", {})
    write_group(path / "exchange" / direction, {})
    sender, receiver = np.divmod(exchange.pair, exchange.num_parts)
    columns: dict[str, NDArray[Any]] = {"sender": sender.astype(np.int32), "receiver": receiver.astype(np.int32)}
    for name, column in (columns | {"rows": exchange.rows}).items():
        output.add(write_array(path, f"exchange/{direction}/{name}", column, ("pair",)))
