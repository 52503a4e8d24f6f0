"""A graph with types before it is read: views of rows, features and pairs that have stated sizes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.artifacts.links import PAIR, VALUE_DTYPES, Links
from gnnloom.storage.artifacts.mapped_links import MappedPairs
from gnnloom.storage.artifacts.mapped_vertices import COUNTED, SplitVertices, vertices_contents
from gnnloom.storage.artifacts.samples import StoredBatch
from gnnloom.storage.artifacts.typed.mapped_graph import MappedRelation, relation_contents, reverse_contents
from gnnloom.storage.artifacts.typed.reverses import Reverse, Reverses, UnstoredReverses
from gnnloom.storage.artifacts.typed.typed_graph import Relation, TypedGraph
from gnnloom.storage.artifacts.typed.typed_names import reverse_name
from gnnloom.storage.artifacts.typed.typed_samples import HeteroBatch, TypedSamples
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.format.mapped_copy import ArrayContent
from gnnloom.storage.format.schema import LINK_SPLITS
from gnnloom.storage.format.vertex_arrays import SPLIT
from gnnloom.storage.matrix.csr import CSR, index_dtype
from gnnloom.storage.matrix.ranges import Span
from gnnloom.storage.sampling.layers.graph_view import Draw, GraphView, Rows
from gnnloom.trainer.data.typed_vertices import TypedRows, TypedVertices
from gnnloom.trainer.data.vertex_data import as_features
from gnnloom.trainer.feed.batches import Batches
from gnnloom.trainer.feed.feature_view import FeatureView
from gnnloom.trainer.kernels.dispatch import Unwritten, with_values
from gnnloom.trainer.loader.streams import Fields
from gnnloom.trainer.loader.typed import TypedViews
from gnnloom.trainer.loader.vertices import FEATURE_DTYPES, VertexChoice, VertexFields
from gnnloom.trainer.passes.ranges import CARRIED, SeedsThatFit
from gnnloom.trainer.passes.ranges import Made as Seeded
from gnnloom.trainer.place.arrays import array_dtype
from gnnloom.trainer.training.rehearsal.rank_rows import DRAWN, NUMBERED, sampled_ranges
from gnnloom.trainer.training.rehearsal.unread_samples import StatedStoredBatches

Made = TypeVar("Made")

#: Maximum number of rows to search for the longest row of a matrix, and rows per read of row pointers.
_SCANNED_ROWS, _SCANNED_AT_ONCE = 1 << 30, 1 << 20
#: Standard deviations by which the largest of many batches exceeds the mean.
_DEVIATIONS = 3


@dataclass(frozen=True)
class UnreadTypes(TypedVertices):
    """The vertices that are predicted, without their contents."""

    memory: Unwritten = field(kw_only=True)

    @classmethod
    def of_types_in(cls, read: TypedVertices, memory: Unwritten) -> Self:
        """The vertices of ``read``, before they are read."""
        return cls(**{each.name: getattr(read, each.name) for each in fields(read)}, memory=memory)

    def labeled(self, split: str) -> SplitVertices:
        """See :meth:`TypedVertices.labeled`: evenly spread vertices, in the number of the split."""
        return _EvenVertices(self.most_in(split), self.num_vertices, self.memory)

    def most_in(self, split: str) -> int:
        """Number of vertices of a split, labeled or not; all vertices if it is not known."""
        return int(self.artifact.facts.get(split, self.num_vertices))

    def own_rows(self, num_ranks: int, rank: int) -> TypedRows:
        """See :meth:`TypedVertices.own_rows`."""
        spans = self.owners(num_ranks).spans(rank)
        count = sum(stop - start for start, stop in spans)
        return _UnreadRows(self, self.memory.array((count,), np.dtype(np.int64)))

    def rows(self, vertices: NDArray[np.int64] | Span) -> TypedRows:
        """See :meth:`TypedVertices.rows`: the rows of a batch."""
        return _TrainingRows(self, vertices)

    def by_type(self, vertices: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """An equal number of different vertices, of two types in proportion to their numbers."""
        total = max(1, sum(each.count for each in self.of_types))
        found = dict[str, NDArray[np.int64]]()
        for each in self.of_types:
            count = min(each.count, -(-len(vertices) * each.count // total))
            found[each.name] = np.arange(count) * each.count // max(1, count)
        return found


class _UnreadRows(TypedRows):
    """Rows of vertex data without contents."""

    shards: UnreadTypes

    def read(self, name: str, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        record = self.shards.artifact.record(name)
        return self.shards.memory.array((len(self.vertices), *record.shape[1:]), dtype or np.dtype(record.dtype))


class _TrainingRows(TypedRows):
    """Vertex data of a batch, all of whose vertices are in the training split."""

    def read(self, name: str, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        record = self.shards.artifact.record(name)
        shape = len(self.vertex()), *record.shape[1:]
        return np.full(shape, SPLIT["train"] if name == "split" else 0, dtype or np.dtype(record.dtype))


class _EvenVertices(SplitVertices):
    """Distinct numbers below a bound, ascending, with the memory of the vertices of a split."""

    def __init__(self, count: int, bound: int, memory: Unwritten) -> None:
        self._count, self._bound = count, bound
        self._before = memory.array((-(-bound // COUNTED) + 1,), np.dtype(np.int64))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return places * self._bound // max(1, self._count)


class SteadySeeds(SeedsThatFit):
    """The batch in the middle of a pass over many vertices, whose size does not grow any more."""

    def batch(
        self,
        vertices: NDArray[np.int64],
        start: int,
        make: Callable[[NDArray[np.int64]], Seeded | None],
        carried: Callable[[Seeded], int],
    ) -> tuple[int, Seeded]:
        stop, before = start, -1
        while stop - start > before and stop < len(vertices):
            before = stop - start
            stop, made = super().batch(vertices, start, make, carried)
        if stop < len(vertices) and carried(made) <= CARRIED / 2:
            # Batches of hubs carry more than others, and are not made smaller as long as they fit.
            self._count *= 2
            stop, made = super().batch(vertices, start, make, carried)
        return stop, made


class StatedViews(TypedViews):
    """Opens views with the sizes of a graph with types and of its vertices.

    Attributes:
        memory: counts the allocated memory.
        most_kept: batches of training whose features are in memory, at most.
        size: bytes of the last batch without features, which are in buffers.
        kernels: bytes in which kernels have drawn it.
        ahead: bytes of the batches that are in memory in addition to the one in use. They are taken to the end: the
            threads that prepare batches keep their memory.
    """

    def __init__(self, memory: Unwritten) -> None:
        self.memory, self.most_kept, self.size, self.kernels = memory, 1, 0, 0
        self.ahead = memory.array((0,), np.dtype(np.uint8))
        self._mapped = dict[Path, int]()

    @property
    def mapped(self) -> int:
        """Bytes of the files that a rank maps."""
        return sum(self._mapped.values())

    def reverses(self, dataset: Dataset, key: str, graph: TypedGraph) -> Reverses:
        """See :meth:`TypedViews.reverses`: reverses need not be stored yet."""
        # Reverses that are not stored have the key of the graph.
        return UnstoredReverses(graph) if key == graph.artifact.key else super().reverses(dataset, key, graph)

    def relations(self, graph: TypedGraph, reverses: Reverses | None) -> dict[str, MappedRelation]:
        """See :meth:`TypedViews.relations`. Reads manifests."""
        stored: dict[str, Relation | Reverse] = {each.name: each for each in graph.relations}
        contents = dict[str, ArrayContent]()
        for each in (graph, graph.origin):
            if each is not None:
                contents |= self._noted(each.artifact.path, relation_contents(each)) | contents
        while reverses is not None:
            stored |= {each.name: each for each in reverses.relations if each.name not in stored}
            self._noted(reverses.artifact.path / "reverses", reverse_contents(reverses))
            reverses = reverses.origin
        return {name: self._relation(each, stored, contents) for name, each in stored.items()}

    def _relation(
        self, each: Relation | Reverse, stored: Mapping[str, BlockMatrix], contents: Mapping[str, ArrayContent]
    ) -> MappedRelation:
        of = each.relation if isinstance(each, Reverse) else each
        ends = (of.target, of.source) if isinstance(each, Reverse) else (of.source, of.target)
        indices = np.empty(0, index_dtype(each.num_columns))
        matrix = CSR(0, self.memory.array((each.num_rows + 1,), np.dtype(np.int64)), indices, None, each.num_columns)
        columns = {
            name: np.empty((0, *content.shape[1:]), content.dtype)
            for path, content in contents.items()
            for relation, _, name in [path.rpartition(".")]
            if relation == of.name and name not in {"indptr", "indices", "position"}
        }
        opposite = stored.get(of.name if isinstance(each, Reverse) else reverse_name(each.name))
        view = _StatedRows(each, opposite)
        return _StatedRelation(each.name, ends[0].name, ends[1].name, matrix, columns, view=view, memory=self.memory)

    def rows(self, relation: MappedRelation, neighbor_sampler: str) -> GraphView:
        if not isinstance(relation, _StatedRelation):
            return super().rows(relation, neighbor_sampler)
        return relation.view

    def whole_rows(self, relation: MappedRelation) -> GraphView:
        return relation.view.whole() if isinstance(relation, _StatedRelation) else super().whole_rows(relation)

    def fields(
        self,
        vertices: Vertices | None,
        choice: VertexChoice,
        kept: int,
        dataset: Path,  # noqa: ARG002
        beside: Sequence[NDArray[Any]],  # noqa: ARG002
    ) -> VertexFields:
        if vertices is not None:
            self._noted(vertices.artifact.path, vertices_contents(vertices))
        return _StatedFields(vertices, choice, kept, self)

    def pairs(self, links: Links) -> Mapping[str, MappedPairs]:
        """See :meth:`TypedViews.pairs`: pairs of random vertices."""
        return {split: _stated_pairs(links, split) for split in LINK_SPLITS}

    def read(self, found: dict[Any, Fields]) -> dict[Any, Fields]:
        """See :meth:`TypedViews.read`: modules read the values of whole numbers."""
        return _with_values(found)  # type: ignore[no-any-return]

    def drawn(self, found: dict[Any, Fields]) -> dict[Any, Fields]:
        """See :meth:`TypedViews.drawn`. Counts what the batch takes."""
        found = self.read(found)
        edges = sum(each["edge_index"].shape[1] for each in found.values() if "edge_index" in each)
        vertices = sum(len(each["n_id"]) for each in found.values() if "n_id" in each)
        self.kernels = NUMBERED * vertices + DRAWN * edges
        # Kernels draw the batches of an evaluation, too, which nobody prepares ahead.
        self.memory.array((self.kernels,), np.dtype(np.uint8))
        tensors = (each for own in found.values() for name, each in own.items() if name != "x")
        self.size = sum(each.nbytes for each in tensors if isinstance(each, Tensor))
        return found

    def batches(self, drawn: Batches[Made]) -> Batches[Made]:
        return _StatedBatches(drawn, self)

    def stored(
        self,
        samples: TypedSamples,
        rank: int,
        make: Callable[[StoredBatch[HeteroBatch]], Made],
        kept: int,
        counter: ReadCounter | None,  # noqa: ARG002 - little is read
    ) -> Batches[Made]:
        """See :meth:`TypedViews.stored`."""
        return StatedStoredBatches(samples, rank, make, self.memory, kept)

    def packed(self, rows: NDArray[Any], choice: VertexChoice, where: str, vertices: NDArray[np.int64]) -> Tensor:  # noqa: ARG002 - no values
        """See :meth:`TypedViews.packed`: rows of another dtype are converted."""
        place, sums = choice.place, array_dtype(choice.place.sum_dtype)
        features = as_features(rows if rows.dtype == sums else self.memory.array(rows.shape, sums), "none", place)
        if features.dtype != place.feature_dtype:
            features = self.memory.tensor(rows.shape, place.feature_dtype)
        return features

    def _noted(self, path: Path, contents: dict[str, ArrayContent]) -> dict[str, ArrayContent]:
        self._mapped[path] = sum(each.num_bytes for each in contents.values())
        return contents


def _with_values(found: Any) -> Any:
    """The same fields, whose whole numbers have values."""
    if isinstance(found, dict):
        return {name: _with_values(each) for name, each in found.items()}
    return with_values(found) if isinstance(found, Tensor) and not found.is_floating_point() else found


@dataclass(frozen=True)
class _StatedRelation(MappedRelation):
    """A relation whose entries have not been read."""

    view: _StatedRows = field(kw_only=True)
    memory: Unwritten = field(kw_only=True)

    def values(self, name: str, entry: NDArray[np.int64]) -> NDArray[Any]:
        column = self.columns[name]
        return self.memory.array((len(entry), *column.shape[1:]), column.dtype)


class _StatedRows:
    """Rows of about the lengths of a matrix, with random columns; see :class:`GraphView`.

    A vertex has the length of a row nearby that was read. Columns are as frequent as the lengths of their rows in the
    opposite matrix say, or equally frequent, so that a batch has the most vertices.
    """

    def __init__(self, matrix: BlockMatrix, opposite: BlockMatrix | None) -> None:
        self._matrix, self._opposite = matrix, opposite
        self.num_rows, self.num_columns = matrix.num_rows, matrix.num_columns

    @cached_property
    def _lengths(self) -> NDArray[np.int64]:
        return _sampled_lengths(self._matrix)

    @cached_property
    def _below(self) -> NDArray[np.int64] | None:
        """Sums of the lengths of the columns before each of the sampled ones, and of all."""
        if self._opposite is None or not self._opposite.num_rows:
            return None
        found = np.cumsum(_sampled_lengths(self._opposite))
        return found if found[-1] else None

    def whole(self) -> _WholeStatedRows:
        """The same rows for an evaluation, which reads all of their entries."""
        return _WholeStatedRows(self._matrix, self._opposite)

    def lengths(self, vertices: NDArray[np.int64], excluded: NDArray[np.int64] | None = None) -> NDArray[np.int64]:  # noqa: ARG002 - few
        """See :meth:`GraphView.lengths`."""
        lengths = self._lengths
        return lengths[vertices * len(lengths) // max(1, self.num_rows)]

    def rows(self, vertices: NDArray[np.int64], draw: Draw) -> Rows:
        row_nnz = self.lengths(vertices)
        count = row_nnz if draw.takes_all else np.minimum(row_nnz, draw.fanout)
        if draw.replace and not draw.takes_all:
            count = np.where(row_nnz > 0, draw.fanout, 0)
        if len(count) and np.any(draw.fanout):
            # Some batches are larger than most.
            more = round(_DEVIATIONS * float(count.std()) * len(count) ** 0.5)
            count = count + more // len(count) + (np.arange(len(count)) < more % len(count))
        return self._drawn(row_nnz, count, draw)

    def _drawn(self, row_nnz: NDArray[np.int64], count: NDArray[np.int64], draw: Draw) -> Rows:
        """Rows of whole lengths and drawn lengths."""
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(count)])
        total = int(indptr[-1])
        column = self._columns(total, int(draw.stream)) if self.num_columns else np.empty(0, np.int32)
        return Rows(indptr, column, np.arange(total), row_nnz)

    def _columns(self, count: int, stream: int) -> NDArray[Any]:
        rng, dtype, below = np.random.default_rng(stream), index_dtype(self.num_columns), self._below
        if below is None:
            return rng.integers(0, self.num_columns, count, dtype)
        # A sampled row stands for the rows around it.
        chosen = np.searchsorted(below, rng.integers(0, below[-1], count), side="right")
        first = -(-chosen * self.num_columns // len(below))
        last = -(-(chosen + 1) * self.num_columns // len(below))
        return rng.integers(first, np.maximum(last, first + 1)).astype(dtype)

    def weights(self, entry: NDArray[np.int64]) -> None:
        """Weights are among the columns of the edges."""

    def positions(self, row: NDArray[np.int64], column: NDArray[np.int64]) -> NDArray[np.int64]:  # noqa: ARG002
        return np.empty(0, np.int64)


class _WholeStatedRows(_StatedRows):
    """Rows all of whose entries are read. The first one that is asked for has the longest row of the matrix."""

    @cached_property
    def _longest(self) -> int:
        return longest_row(self._matrix)

    def lengths(self, vertices: NDArray[np.int64], excluded: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        found = super().lengths(vertices, excluded)
        found[:1] = self._longest
        return found

    def rows(self, vertices: NDArray[np.int64], draw: Draw) -> Rows:
        if not draw.takes_all:
            return super().rows(vertices, draw)
        # An evaluation counts the entries of its batches beforehand.
        lengths = self.lengths(vertices)
        return self._drawn(lengths, lengths, draw)


def longest_row(matrix: BlockMatrix) -> int:
    """Upper bound of the length of a row. Reads row pointers of the blocks with most entries, up to a limit."""
    found, left = int(_sampled_lengths(matrix).max()), _SCANNED_ROWS
    bounds = np.asarray(matrix.block_rows)
    for number in sorted(range(matrix.num_blocks), key=lambda each: -matrix.block_nnz[each]):
        num_rows, num_entries = int(bounds[number + 1] - bounds[number]), matrix.block_nnz[number]
        if num_entries <= found:
            break
        left -= num_rows
        if left < 0:
            # A row that was not read may have all entries of its block.
            return max(found, num_entries)
        pointers = matrix.stored_pointers(number)
        for start in range(0, num_rows, _SCANNED_AT_ONCE):
            stop = min(start + _SCANNED_AT_ONCE, num_rows)
            found = max(found, int(np.diff(pointers.read(start, stop + 1)).max(initial=0)))
    return found


def _sampled_lengths(matrix: BlockMatrix) -> NDArray[np.int64]:
    """(num_sampled,) int64 lengths of rows from all over a matrix, ascending by row. Reads chunks of row pointers."""
    found = [np.zeros(0, np.int64)]
    bounds = np.asarray(matrix.block_rows)
    for start, stop in sampled_ranges(matrix.num_rows):
        for number in range(int(np.searchsorted(bounds, start, side="right")) - 1, matrix.num_blocks):
            first = int(bounds[number])
            begin, end = max(start, first), min(stop, int(bounds[number + 1]))
            if begin >= end:
                break
            found.append(np.diff(matrix.stored_pointers(number).read(begin - first, end - first + 1)))
    lengths = np.concatenate(found)
    return lengths if len(lengths) else np.zeros(1, np.int64)


class _StatedFeatures(FeatureView):
    """Features of batches of stated sizes, without values, in buffers that are used again."""

    def __init__(self, width: int, read: torch.dtype, dtype: torch.dtype, kept: int, views: StatedViews) -> None:
        self._width, self._read, self._dtype, self._most, self._views = width, read, dtype, kept, views
        self._buffers: Tensor | None = None

    def rows(self, vertices: NDArray[np.int64]) -> Tensor:
        count, memory = len(vertices), self._views.memory
        if self._buffers is None or self._buffers.shape[1] < count:
            self._buffers = None
            shape = min(self._most, self._views.most_kept), count, self._width
            self._buffers = memory.tensor(shape, self._read)
        if self._read is self._dtype:
            return self._buffers[0, :count]
        return memory.tensor((count, self._width), self._dtype)


class _StatedFields(VertexFields):
    """The tensors of the vertices of a type, without values."""

    def __init__(self, vertices: Vertices | None, choice: VertexChoice, kept: int, views: StatedViews) -> None:
        """Open nothing."""
        self._choice, self._place, self._arrays, self._features = choice, choice.place, {}, None
        if vertices is not None and choice.features in FEATURE_DTYPES:
            read, dtype = choice.place.sum_dtype, FEATURE_DTYPES[choice.features]
            self._features = _StatedFeatures(vertices.num_features, read, dtype, kept, views)


class _StatedBatches(Batches[Made]):
    """One batch of an epoch, and the memory of others that are prepared ahead."""

    def __init__(self, drawn: Batches[Made], views: StatedViews) -> None:
        self._drawn, self._views = drawn, views
        self.num_batches, self.batch_size, self.num_examples = drawn.num_batches, drawn.batch_size, drawn.num_examples

    def prepare(self, epoch: int, number: int) -> Made:
        return self._drawn.prepare(epoch, number)

    def of_epoch(self, epoch: int, numbers: Sequence[int], threads: int, pool: int) -> Generator[Made, None, None]:
        views, memory = self._views, self._views.memory
        # The batch that was used before is there until the next one is.
        others = min(len(numbers), 2 + (pool if threads else 0)) - 1
        views.most_kept = max(1, others + 1)
        for number in numbers[:1]:
            batch, momentary = memory.momentary(lambda number=number: self.prepare(epoch, number))  # type: ignore[misc]
            nbytes = others * views.size + max(1, min(others, threads)) * (momentary + views.kernels)
            views.ahead = memory.array((nbytes,), np.dtype(np.uint8))
            yield batch


class RandomEnds:
    """Pairs of random vertices; where two have a vertex in common, its row is fetched once."""

    def __init__(self, count: int, bounds: Sequence[int]) -> None:
        """State the pairs.

        Args:
            bounds: number of vertices that each column may have.
        """
        self._count, self._bounds = count, np.asarray(bounds, np.int64)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, which: Any) -> NDArray[np.int64]:
        rows, *column = which if isinstance(which, tuple) else (which,)
        numbers = np.arange(*rows.indices(self._count)) if isinstance(rows, slice) else np.asarray(rows)
        rng = np.random.default_rng(int(numbers[0]) if len(numbers) else 0)
        bounds: Any = self._bounds[column[0]] if column else self._bounds
        shape = (len(numbers),) if column else (len(numbers), len(self._bounds))
        return rng.integers(0, np.maximum(bounds, 1), shape)


def _stated_pairs(links: Links, split: str) -> MappedPairs:
    """The pairs of a split, of random vertices."""
    sources, targets, count = links.source_vertices, links.target_vertices, links.num_pairs[split]

    def ends(count: int, *bounds: int) -> NDArray[np.int64] | None:
        return cast("NDArray[np.int64]", RandomEnds(count, bounds)) if count and bounds else None

    return MappedPairs(
        cast("NDArray[np.int64]", RandomEnds(count, (sources, targets))),
        None if links.kind == PAIR else np.zeros(count, VALUE_DTYPES[links.kind]),
        ends(count, *[targets] * links.num_negatives(split)),
        ends(count, *[sources] * links.num_replaced(split)),
        ends(links.num_pooled(split), sources, targets),
        None,
    )
