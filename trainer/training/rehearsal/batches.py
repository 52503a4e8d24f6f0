"""States batches of the sizes in the descriptors of modes, or in stored samples, without drawing any batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.samples import Samples, rank_path, segment_path
from gnnloom.storage.format.vertex_arrays import SPLIT
from gnnloom.storage.matrix.csr import CSR, index_dtype
from gnnloom.storage.matrix.layered import LayeredBatch
from gnnloom.storage.shards.row_shards import RowShard
from gnnloom.storage.shards.shard_matrix import ShardMatrix
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.data.adjacency_scaling import Scaling
from gnnloom.trainer.data.batch_data import BatchRows
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.feed.batches import Batch, Batches
from gnnloom.trainer.feed.feature_view import FeatureView, gradient_of
from gnnloom.trainer.kernels.dispatch import Unwritten, even_offsets
from gnnloom.trainer.layout.partial_parameters import RowGradient
from gnnloom.trainer.modes.epochs.mode import Feed, ModeContext
from gnnloom.trainer.modes.epochs.model_inputs import BatchInputs, StepInputs
from gnnloom.trainer.modes.epochs.pair_batches import RankPairs
from gnnloom.trainer.modes.epochs.prepared import Prepared
from gnnloom.trainer.modes.kind import BatchSizes, RankRows
from gnnloom.trainer.operators.layered import LayeredOperator
from gnnloom.trainer.operators.p2p import SampledRows
from gnnloom.trainer.operators.whole_rows import AXIS, RowsOnly
from gnnloom.trainer.passes.evaluation import StatedBytes, can_stream, stated_bytes
from gnnloom.trainer.passes.passes import run_pass
from gnnloom.trainer.passes.program import layer_output
from gnnloom.trainer.passes.ranges import GATHERED
from gnnloom.trainer.passes.rows_only import OwnRows
from gnnloom.trainer.training.rehearsal.rank_rows import DRAWN, NUMBERED

#: A mode's statement about its batches; see :class:`gnnloom.trainer.modes.kind.ModeKind`.
StatedSizes = Callable[[Mapping[str, Any], int, RankRows], BatchSizes]
#: Number of batches of pairs whose seeds are counted.
_COUNTED = 8
#: Bytes per nonzero of whole rows, as they are drawn: column, position and number.
_GATHERED = 20


def stored_sizes(samples: Samples, rank: int, *, reads_ahead: bool) -> tuple[BatchSizes, int]:
    """The largest batches of a rank on disk, and the number in memory in addition to the one in use.

    Reads the sizes of the layers of one segment; the rank has batches.
    """
    record = samples.artifact.record

    def nbytes(path: str) -> int:
        return math.prod(record(path).shape) * np.dtype(record(path).dtype).itemsize

    numbers = product(range(samples.num_epochs), range(samples.num_segments(rank)))
    largest = max((segment_path(rank, *each) for each in numbers), key=lambda path: nbytes(f"{path}/vertex"))
    rows = samples.artifact.array(f"{largest}/layer_size").read()
    nonzeros = record(f"{largest}/indices").shape[0] / len(rows) * rows[:, 1:].sum(0) / max(1, rows[:, 1:].sum())
    # A segment is read while the previous one is in use and the one before is freed.
    kept = sum(nbytes(f"{largest}/{name}") for name in ("vertex", "row_nnz", "drawn", "indices", "hot"))
    # Of packed features, one chunk; another one as it is stored, and as it is decoded.
    packed = samples.artifact.array(f"{largest}/feature")
    kept += 3 * packed.chunk_rows * packed.shape[1] * packed.dtype.itemsize
    sizes = BatchSizes(
        rows=rows.max(0).tolist(),
        nonzeros=nonzeros.tolist(),
        is_layered=True,
        has_features=True,
        kept_bytes=kept + nbytes(f"{rank_path(rank)}/hot_feature"),
        maps_features=True,
    )
    return sizes, (1 + reads_ahead) * len(rows) - 1


def drawn_sizes(context: ModeContext, stated: StatedSizes, rows: RankRows, pairs: RankPairs | None) -> BatchSizes:
    """The sizes of a rank's batches, from the mode's statement, for pairs about their number of seeds."""
    num_layers = context.model.num_layers
    if pairs is None:
        return stated(context.options, num_layers, rows)
    # The vertices of the pairs are any, so the largest of some batches is like the largest of all.
    of, some = pairs.begin(0), range(max(1, pairs.num_batches))[:_COUNTED]
    seeds = max(1, *(len(of(number).vertices) for number in some))
    # The ends of a pair may be any vertices, of any split and rank.
    sizes = stated({**context.options, "batch_size": seeds}, num_layers, replace(rows, training=seeds))
    return replace(sizes, num_batches=pairs.num_batches)


class StatedFeatures(FeatureView):
    """The features of batches of stated sizes, without values."""

    def __init__(self, context: ModeContext, sizes: BatchSizes, memory: Unwritten) -> None:
        self._context, self._sizes, self._memory = context, sizes, memory

    def rows(self, vertices: NDArray[np.int64]) -> Tensor:
        model = self._context.model
        return self._memory.tensor((len(vertices), model.options.dims[0]), model.dtype)

    def ahead(self, vertices: NDArray[np.int64]) -> Tensor:
        has_rows = self._sizes.has_features and self._context.learned is None
        return self.rows(vertices if has_rows else vertices[:0])

    def in_step(self, vertices: NDArray[np.int64], ahead: Tensor) -> Tensor:
        """See :meth:`FeatureView.in_step`. Of learned rows, all may come from other ranks."""
        context, sizes, learned = self._context, self._sizes, self._context.learned
        if learned is None and sizes.has_features:
            return ahead
        place, width, dtype = context.place, context.model.options.dims[0], context.model.dtype
        asked = int(sizes.asked) if learned is None else len(vertices)
        feature = place.empty((len(vertices), width), dtype)
        if self._exchanges:
            copied = self._memory.tensor((int(sizes.copied), width), dtype)
            del copied
            # A rank sends the number of rows that it asks for.
            moved = [place.empty((asked, width), dtype) for _ in range(2)]
            del moved
        return feature if learned is None else feature.requires_grad_()

    def give_back(self, vertices: NDArray[np.int64], rows: Tensor) -> None:
        """Take the memory of the gradient of a rank's rows, whose number equals the fetched rows."""
        learned, place = self._context.learned, self._context.place
        if learned is None:
            return
        gradient = gradient_of(rows, place)
        numbers = self._memory.tensor((len(vertices),), torch.int64)
        if self._exchanges:
            sent, arrived = place.like(gradient), place.like(gradient)
            del sent
            # The sums, and what is added to them.
            gradient, part = place.like(arrived), place.like(arrived)
            del part
        learned.row_gradient = RowGradient(numbers, gradient)

    @property
    def _exchanges(self) -> bool:
        """Whether rows come from other ranks."""
        return self._sizes.fetches and self._context.comm.size > 1


class StatedBatches(Batches[Any], Feed):
    """Batches of stated sizes, without values, of a mode on a graph without types; opens and draws nothing.

    Attributes:
        rows: rows of the rank.
        sizes: sizes of a batch.
        ahead: batches in memory in addition to the one in use.
    """

    def __init__(self, context: ModeContext, stated: StatedSizes, rows: RankRows, memory: Unwritten) -> None:
        """Prepare the batches that are ahead."""
        self._context, self.rows, self._memory = context, rows, memory
        self._pairs, samples, options = RankPairs.of(context), context.given.samples, context.options
        threads, rank = options["sampler_threads"], context.comm.rank
        if samples is not None and samples.num_batches[rank]:
            self.sizes, ahead = stored_sizes(samples, rank, reads_ahead=threads > 0)
        else:
            self.sizes = drawn_sizes(context, stated, rows, self._pairs)
            ahead = self.sizes.most_others(options["pool"], threads)
        # Every loss has terms, also of a rank without vertices, and every rank has a batch in the first step.
        self._num_rows = [max(1, int(each)) for each in self.sizes.rows]
        self.num_batches, self.batch_size = context.comm.size, self._num_rows[-1]
        self._alone = ProcessGrid(context.comm.group(0, 0, 1), {AXIS: 1}, context.place)
        drawn = (NUMBERED * self.sizes.rows[0] + DRAWN * max(self.sizes.nonzeros)) * max(1, threads)
        kept = self.sizes.kept_bytes + (0 if samples else drawn)
        self._kept = memory.array((round(kept),), np.dtype(np.uint8))
        # Without memory of its own: only its length counts.
        self._vertices = np.broadcast_to(np.int64(0), self._num_rows[0])
        self._features = StatedFeatures(context, self.sizes, memory)
        # A run loads the operator of the batch in use only. The others are a margin for memory that threads keep.
        self.ahead = [(self._operator(), self._features.ahead(self._vertices)) for _ in range(ahead)]

    def open(self, opened: object) -> tuple[Batches[Any], FeatureView]:  # noqa: ARG002 - nothing is read
        return self, self._features

    def prepare(self, epoch: int, number: int) -> Batch | Prepared:
        feature = self._features.ahead(self._vertices)
        if self._pairs is not None:
            seeds = self._pairs.begin(epoch)(0)
            return Batch(self._layered(seeds.vertices).batch, seeds.pairs, feature)
        # All vertices of the batch are in the training split.
        place, label = self._context.place, self._context.labels.label
        split = place.lasting((self.batch_size,), torch.uint8).fill_(SPLIT["train"])
        labels = Labels(place.lasting((self.batch_size, *label.shape[1:]), label.dtype), split)
        operator = self._operator()
        if isinstance(operator, LayeredOperator):
            return Batch(operator.batch, labels.label, feature)
        loss = self._context.vertex_objective.loss(operator.layout(self._context.model.num_layers), labels)
        # The weights of classes have no values.
        loss.num_terms = 1.0
        return Prepared(number, self._vertices, operator, feature, loss)

    def of_epoch(self, epoch: int, numbers: Sequence[int], threads: int, pool: int) -> Generator[Any, None, None]:  # noqa: ARG002 - one batch
        yield self.prepare(epoch, numbers[0])

    def of_all(self, numbers: Iterable[int], threads: int, pool: int) -> Generator[Any, None, None]:  # noqa: ARG002 - one batch
        while True:
            yield self.prepare(0, 0)

    def scores(self, computed: object) -> Tensor:  # noqa: ARG002 - nothing is read
        """Take the memory of an evaluation from disk; returns scores without values."""
        context, model, count = self._context, self._context.model, len(self._context.labels.split)
        if isinstance(context.given, StepInputs):
            # The place goes through the first range only; others take the memory that it has taken.
            rows = OwnRows(model, self._features, np.broadcast_to(np.int64(0), count))
            run_pass(rows, count, [None, None], model.place)
        elif not can_stream(model):
            self._score_by_layer()
        if self.streamed is not None:
            taken = self._memory.array((self.streamed.memory,), np.dtype(np.uint8))
            del taken
        shape = count if context.measured is None else len(context.measured), context.objective.num_outputs
        return context.place.lasting(shape, model.dtype)

    def _score_by_layer(self) -> None:
        """Take the memory of one range of rows of each layer; as :mod:`gnnloom.trainer.passes.layerwise` does."""
        context, rows, model = self._context, self.rows, self._context.model
        operator = LayeredOperator(context.comm, model.num_layers, context.normalization, context.place)
        # The rank's vertices in ascending order, and their places.
        own = self._memory.array((2, rows.own), np.dtype(np.int64))
        for layer, dim in enumerate(model.options.dims[:-1]):
            # A row gathers its own features, and one row for each of its entries.
            count = min(rows.own, max(1, int(GATHERED / dim / (1 + rows.mean_degree))))
            nonzeros = round(count * rows.mean_degree)
            reached = rows.num_vertices * -math.expm1(-nonzeros / max(1, rows.num_vertices))
            columns = min(rows.num_vertices, count + round(reached))
            drawn = self._memory.array((NUMBERED * columns + _GATHERED * nonzeros,), np.dtype(np.uint8))
            later = CSR(0, np.zeros(count + 1, np.int64), np.empty(0, np.int32), None, count)
            blocks = (self._csr(count, columns, nonzeros),) * (layer + 1) + (later,) * (model.num_layers - layer - 1)
            vertices = np.zeros(columns, np.int64)
            operator.load(LayeredBatch(vertices, blocks, vertices.copy(), np.ones(columns)))
            # The rows of a range stay until the next range has its rows. Rows arrive from other ranks, and the same
            # number of rows is sent.
            remote = columns * (context.comm.size - 1) // context.comm.size
            moved = [self._memory.tensor((each, dim), model.dtype) for each in (columns, remote, remote)]
            with model.multiplying_by(operator):
                layer_output(model, context.place.empty((columns, dim), model.dtype), layer)
            del drawn, moved
        del own

    @cached_property
    def streamed(self) -> StatedBytes | None:
        """Bytes of an evaluation from disk, without the memory of a range of rows; None without one."""
        context, rows = self._context, self._context.label_rows
        reads_batches = isinstance(context.given, BatchInputs)
        if not (reads_batches and isinstance(rows, RowShard)) or context.model.takes_edges:
            return None
        if not can_stream(context.model):
            # The outputs of a layer, and of the layer before, are in files of this rank.
            widths = [0, *context.model.options.dims[1:]]
            row_bytes = max(map(sum, pairwise(widths))) * context.place.sum_dtype.itemsize
            files = len(context.labels.split) * row_bytes
            return StatedBytes(0, temporary=files, mapped=files)
        measured = context.labels.split if context.measured is None else context.measured
        return stated_bytes(context.model, context.source, rows, len(measured))

    def _operator(self) -> LayeredOperator | SampledRows | RowsOnly:
        """The products of a batch."""
        if isinstance(self._context.given, StepInputs):
            return RowsOnly(self._alone, np.zeros(self.batch_size, np.int64))
        return self._layered() if self.sizes.is_layered else self._one_matrix()

    def _one_matrix(self) -> SampledRows:
        context, sizes = self._context, self.sizes
        count, received = self._num_rows[0], int(sizes.received)
        grid, offsets, nonzeros = self._alone, np.zeros(2, np.int64), sizes.nonzeros[0]
        if received:
            grid, offsets = context.operator.grid, even_offsets(context.comm.size + 1, received)
        halo = nonzeros * received / max(1, count + received)
        rows = self._memory.array((received,), np.dtype(np.int64))
        own = self._csr(count, count, nonzeros - halo, sizes.loops)
        matrix = ShardMatrix(own, self._csr(count, received, halo), rows, offsets, rows, offsets)
        same = context.shards.symmetric and not context.options.get("presamples")
        transpose = matrix if same else replace(matrix, own=self._csr(count, count, nonzeros - halo))
        factors = context.place.lasting((count,), context.place.sum_dtype)
        given = BatchRows(np.zeros(count, np.int64), matrix, transpose, Scaling(factors, factors))
        return SampledRows(grid, given, multiplies=type(context.model).multiplies)

    def _layered(self, seeds: Sequence[int] | NDArray[np.int64] = ()) -> LayeredOperator:
        """The products of a layered batch.

        Args:
            seeds: vertices whose positions among the seeds the loss looks up, ascending.
        """
        context, sizes, rows = self._context, self.sizes, self._num_rows
        if context.model.takes_edges:
            graph = self._weighted(edges_alike(rows, [round(each) for each in sizes.nonzeros], round(sizes.loops)))
            # Neighbors are drawn once, so that the layers have the leading rows of the same graph.
            blocks = tuple(_leading(graph, count, width) for width, count in pairwise(rows))
        else:
            blocks = tuple(
                self._csr(after, before, each)
                for (before, after), each in zip(pairwise(rows), sizes.nonzeros, strict=True)
            )
        # In another epoch, a batch may have more seeds than the counted batches: the last row stands for the others.
        known, vertices = seeds[: rows[-1] - 1], np.full(rows[0], np.iinfo(np.int64).max)
        vertices[: len(known)] = known
        operator = LayeredOperator(context.comm, context.model.num_layers, context.normalization, context.place)
        operator.load(LayeredBatch(vertices, blocks, np.zeros(rows[0], np.int64), np.ones(rows[0])))
        return operator

    def _csr(self, num_rows: int, num_columns: int, nonzeros: float, loops: float = 0.0) -> CSR:
        if self._context.model.takes_edges:
            return self._weighted(edges_alike([num_columns, num_rows], [round(nonzeros)], round(loops)))
        indices = self._memory.array((round(nonzeros),), index_dtype(num_columns))
        return CSR(0, even_offsets(num_rows + 1, round(nonzeros)), indices, None, num_columns)

    def _weighted(self, graph: CSR) -> CSR:
        """The same edges, with weights without values if the run's graph has weights."""
        if not self._context.shards.weighted:
            return graph
        return replace(graph, data=self._memory.array((graph.nnz,), np.dtype(np.float32)))


def edges_alike(rows: Sequence[int], nonzeros: Sequence[int], loops: int) -> CSR:
    """A graph of the size of a batch, for modules whose results depend on the edges that they are given.

    The rows of each hop have about equally many entries, which refer to all vertices up to the next hop about equally
    often.

    Args:
        rows: numbers of vertices, of all hops first; in the end those whose rows the first hop has.
        nonzeros: number of nonzeros of the rows, likewise.
        loops: rows that have an entry for themselves.
    """
    known = list(zip(rows[::-1], nonzeros[::-1], strict=False))
    indptr, indices, first = np.zeros(1, np.int64), np.empty(nonzeros[0], index_dtype(rows[0])), 0
    for (count, stop), width in zip(known, rows[-2::-1], strict=True):
        start = int(indptr[-1])
        indptr = np.concatenate([indptr, start + even_offsets(count - first + 1, stop - start)[1:]])
        indices[start:stop] = np.arange(stop - start) % max(1, width)
        first = count
    alone = np.linspace(0, first - 1, min(loops, first)).astype(np.int64) if first else np.empty(0, np.int64)
    alone = alone[np.diff(indptr)[alone] > 0]
    indices[indptr[alone]] = alone
    return CSR(0, indptr, indices, None, rows[0])


def _leading(graph: CSR, num_rows: int, num_columns: int) -> CSR:
    indptr = graph.indptr[: num_rows + 1].copy()
    data = None if graph.data is None else graph.data[: indptr[-1]]
    return CSR(0, indptr, graph.indices[: indptr[-1]].copy(), data, num_columns)
