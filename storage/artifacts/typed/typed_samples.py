"""Samples of a graph with types: the segments of other samples, with arrays by type and by relation.

Rank r of P has the batches r, P + r, and so on, of an epoch. All ranks have the same frequent vertices, which are
stored once, as are the seeds: every rank takes its batches from one random order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.samples import (
    PACKED,
    Cursor,
    FeaturesByType,
    PackedRows,
    StoredBatch,
    StoredSamples,
    pack_blocks,
    segment_path,
)
from gnnloom.storage.artifacts.typed.typed_graph import EDGE_ARRAYS, relation_folder, type_folder
from gnnloom.storage.disk.files import parsing
from gnnloom.storage.disk.row_buffers import RowBuffers
from gnnloom.storage.errors import CorruptError, InputError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.format.artifact import MANIFEST, Artifact
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.format.vertex_arrays import vertex_bounds
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.wording import counted

#: Path of the seeds of all ranks.
SEEDS = "seed"


@dataclass(frozen=True)
class SampledEdges:
    """The edges of a relation in a batch.

    Attributes:
        matrix: rows of the leading vertices of the target type; columns are positions in the vertices of the source
            type.
        edge: (nnz,) int64 positions of the entries among the edges of the relation.
        columns: (nnz, ...) values of the edges by name, such as ``weight``.
        num_entries: entries that each hop draws.
    """

    matrix: CSR
    edge: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]]
    num_entries: list[int]


@dataclass(frozen=True)
class HeteroBatch:
    """Vertices and edges of a batch of a graph with types.

    Attributes:
        vertices: (num_vertices,) int64 vertices of each type: the seeds, then the vertices that each hop adds.
        num_vertices: number of seeds of each type, and then of the vertices that each hop adds.
        edges: by relation.
    """

    vertices: Mapping[str, NDArray[np.int64]]
    num_vertices: Mapping[str, list[int]]
    edges: Mapping[str, SampledEdges]


@dataclass(frozen=True)
class PackedRelation:
    """A relation of stored batches.

    Attributes:
        columns: names of the columns of its edges.
    """

    name: str
    source: str
    target: str
    num_edges: int
    columns: tuple[str, ...]

    @property
    def edge_type(self) -> tuple[str, str, str]:
        """Source type, name and target type."""
        return self.source, self.name, self.target


class TypedSamples(StoredSamples[HeteroBatch]):
    """The stored batches of a graph with types.

    Attributes:
        of_type: type of the seeds.
        types: number of vertices by type.
        widths: number of features of each type that has features.
        relations: the relations that batches gather along.
        relation_fanouts: fan-outs of each relation, for each hop from the seeds on.
    """

    def __init__(self, artifact: Artifact) -> None:
        """Read the facts from the manifest.

        Raises:
            InputError: the batches are batches of a graph without types.
            CorruptError: the manifest does not describe batches of a graph with types.
        """
        if artifact.version != TYPED_VERSION:
            raise InputError(f"{artifact.path}: batches of a graph without types; Dataset.samples reads them")
        super().__init__(artifact)
        with parsing(artifact.path / MANIFEST, "the manifest of samples of a graph with types"):
            facts = artifact.facts
            self.of_type: str = artifact.parameters["of_type"]
            self.reverse: bool = artifact.parameters.get("reverse", False)
            self.types: dict[str, int] = {each["name"]: int(each["count"]) for each in facts["types"]}
            self.widths: dict[str, int] = {
                each["name"]: int(each["width"]) for each in facts["types"] if each["width"] is not None
            }
            self.relations = tuple(
                PackedRelation(
                    each["name"], each["source"], each["target"], int(each["num_edges"]), tuple(each["columns"])
                )
                for each in facts["relations"]
            )
            self.relation_fanouts: dict[str, tuple[int, ...]] = {
                each["name"]: tuple(each["fanout"]) for each in facts["relations"]
            }
            ends = {name for each in self.relations for name in (each.source, each.target)} | {self.of_type}
            columns = {column for each in self.relations for column in each.columns}
            if not ends <= set(self.types) or not columns <= set(EDGE_ARRAYS):
                raise CorruptError(f"{artifact.path / MANIFEST}: unknown types {ends}, or columns of edges {columns}")

    def __repr__(self) -> str:
        return (
            f"TypedSamples({counted(self.num_epochs, 'epoch')} of {counted(sum(self.num_batches), 'batch')} of"
            f" {self.of_type} for {counted(self.num_ranks, 'rank')})"
        )

    @property
    def num_hops(self) -> int:
        """Number of hops of every batch."""
        return max((len(each) for each in self.relation_fanouts.values()), default=0)

    @property
    def drawn(self) -> dict[str, Any]:
        """See :attr:`StoredSamples.drawn`."""
        return {
            "fanout": self.fanouts,
            "batch_size": self.batch_size,
            "replace": self.replace,
            "neighbor_sampler": self.neighbor_sampler,
            "relation_fanout": tuple(self.artifact.parameters.get("relation_fanout", ())),
            "fanout_total": bool(self.artifact.parameters.get("fanout_total", False)),
            "reverse": self.reverse,
        }

    def seeds(self, counter: ReadCounter | None = None) -> NDArray[np.int64]:
        """(num_seeds,) int64 the seeds of all ranks, ascending."""
        return self.artifact.array(SEEDS, counter, (0, self.types[self.of_type])).read()

    def num_batches_for(self, rank: int) -> int:  # noqa: ARG002 - all ranks have one numbering
        """See :meth:`StoredSamples.num_batches_for`."""
        return sum(self.num_batches)

    def place(self, rank: int, number: int) -> tuple[int, int]:  # noqa: ARG002 - see above
        """See :meth:`StoredSamples.place`."""
        return number % self.num_ranks, number // self.num_ranks

    def num_last_seeds(self, rank: int) -> int:
        """See :meth:`StoredSamples.num_last_seeds`."""
        owner, _ = self.place(rank, sum(self.num_batches) - 1)
        path = f"{self.last_segment(owner)}/{type_folder(self.of_type)}size"
        return int(self.artifact.array(path).read()[-1, 0])

    def hot_features(self, rank: int, counter: ReadCounter | None = None) -> FeaturesByType:  # noqa: ARG002 - shared
        """See :meth:`StoredSamples.hot_features`."""
        return {name: self.artifact.array(f"{type_folder(name)}hot_feature", counter).read() for name in self.widths}

    def read_segment(
        self,
        rank: int,
        epoch: int,
        number: int,
        hot_features: FeaturesByType,
        counter: ReadCounter | None = None,
        buffers: Mapping[str, RowBuffers] | None = None,
    ) -> Iterator[StoredBatch[HeteroBatch]]:
        """See :meth:`StoredSamples.read_segment`."""
        prefix, memory = segment_path(rank, epoch, number), buffers or {name: RowBuffers() for name in hot_features}
        where = f"{self.artifact.path}/{prefix}"

        def read(name: str, bounds: tuple[int, int] | None = None) -> NDArray[Any]:
            return self.artifact.array(f"{prefix}/{name}", counter, bounds).read()

        label = self.label_name(rank)
        labels = Cursor(where, {"label": read(label, vertex_bounds(label, self.artifact.facts))})
        sizes = {name: read(f"{type_folder(name)}size", (0, count + 1)) for name, count in self.types.items()}
        vertices = {
            name: Cursor(where, {"vertex": read(f"{type_folder(name)}vertex", (0, count))})
            for name, count in self.types.items()
        }
        hot = {
            name: Cursor(where, {"hot": read(f"{type_folder(name)}hot", (PACKED, len(rows)))})
            for name, rows in hot_features.items()
        }
        packed = {
            name: PackedRows(self.artifact.array(f"{prefix}/{type_folder(name)}feature", counter)) for name in hot
        }
        edges = {each.name: _RelationCursor(where, each, read) for each in self.relations}
        for at in range(len(sizes[self.of_type])):
            added = {name: array[at].tolist() for name, array in sizes.items()}
            features = {
                name: packed[name].with_frequent(each.take("hot", sum(added[name])), hot_features[name], memory[name])
                for name, each in hot.items()
            }
            drawn = {
                each.name: edges[each.name].take(at, added[each.source], added[each.target]) for each in self.relations
            }
            taken = {name: each.take("vertex", sum(added[name])) for name, each in vertices.items()}
            yield StoredBatch(HeteroBatch(taken, added, drawn), labels.take("label", added[self.of_type][0]), features)


class _RelationCursor:
    """Takes the edges of a relation of one batch after the other."""

    def __init__(self, where: str, relation: PackedRelation, read: Any) -> None:
        folder = relation_folder(relation.name)
        self._columns, self._where = relation.columns, f"{where}/{folder}"
        bounds = {"drawn": (0, 1 << 62), "indices": None, "edge": (0, relation.num_edges)}
        arrays = {name: read(f"{folder}{name}", each) for name, each in bounds.items()}
        arrays |= {name: read(f"{folder}{name}") for name in relation.columns}
        self._arrays, self._size = Cursor(self._where.rstrip("/"), arrays), read(f"{folder}size", (0, 1 << 62))

    def take(self, at: int, sources: list[int], targets: list[int]) -> SampledEdges:
        """The edges of batch ``at``.

        Args:
            sources, targets: number of vertices of both types that each hop adds, the seeds first.
        """
        # The vertices that the last hop adds draw nothing.
        matrix, entries = self._arrays.block(sum(targets[:-1]), sum(sources)), self._size[at].tolist()
        if sum(entries) != matrix.nnz:
            raise CorruptError(f"{self._where}size: {sum(entries)} edges in a batch, its rows have {matrix.nnz}")
        columns = {name: self._arrays.take(name, matrix.nnz) for name in self._columns}
        return SampledEdges(matrix, self._arrays.take("edge", matrix.nnz), columns, entries)


def pack_hetero(batches: Sequence[HeteroBatch]) -> dict[str, tuple[NDArray[Any], tuple[str, ...]]]:
    """The arrays of a segment's vertices and edges, by path, with their dimensions.

    Args:
        batches: at least one.
    """
    arrays = dict[str, tuple[NDArray[Any], tuple[str, ...]]]()
    first = batches[0]
    for name in first.vertices:
        folder = type_folder(name)
        sizes = np.array([batch.num_vertices[name] for batch in batches], np.int64)
        arrays[f"{folder}size"] = sizes, ("batch", "hop+1")
        arrays[f"{folder}vertex"] = np.concatenate([batch.vertices[name] for batch in batches]), ("row",)
    for name, edges in first.edges.items():
        folder, own = relation_folder(name), [batch.edges[name] for batch in batches]
        arrays[f"{folder}size"] = np.array([each.num_entries for each in own], np.int64), ("batch", "hop")
        packed = pack_blocks([each.matrix for each in own])
        arrays |= {f"{folder}{path}": (array, (dim,)) for path, (array, dim) in packed.items()}
        arrays[f"{folder}edge"] = np.concatenate([each.edge for each in own]), ("nonzero",)
        for column in edges.columns:
            values = np.concatenate([each.columns[column] for each in own])
            arrays[f"{folder}{column}"] = values, ("nonzero", "value")[: values.ndim]
    return arrays
