"""Rehearses modes that sample, on batches of the sizes in their descriptors, without drawing any batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.samples import Samples, rank_path, segment_path
from gnnloom.storage.matrix.csr import CSR, index_dtype
from gnnloom.storage.matrix.layered import LayeredBatch
from gnnloom.storage.shards.row_shards import RowShard
from gnnloom.storage.shards.shard_matrix import ShardMatrix
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.data.adjacency_scaling import Scaling
from gnnloom.trainer.data.batch_data import BatchRows
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.feed.feature_view import FeatureView, gradient_of
from gnnloom.trainer.kernels.dispatch import Unwritten, even_offsets
from gnnloom.trainer.layout.partial_parameters import RowGradient
from gnnloom.trainer.modes.epochs.mode import Mode, ModeContext, form_gradients
from gnnloom.trainer.modes.epochs.model_inputs import BatchInputs, StepInputs
from gnnloom.trainer.modes.epochs.pair_batches import RankPairs
from gnnloom.trainer.modes.kind import BatchSizes, RankRows
from gnnloom.trainer.operators.layered import LayeredOperator
from gnnloom.trainer.operators.p2p import SampledRows
from gnnloom.trainer.operators.whole_rows import AXIS, RowsOnly
from gnnloom.trainer.passes.evaluation import StatedBytes, can_stream, stated_bytes
from gnnloom.trainer.passes.passes import run_pass
from gnnloom.trainer.passes.program import layer_output
from gnnloom.trainer.passes.ranges import GATHERED
from gnnloom.trainer.passes.rows_only import OwnRows
from gnnloom.trainer.tasks.objectives.masked_loss import MaskedLoss
from gnnloom.trainer.tasks.objectives.objective import StepLoss
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


def pair_sizes(context: ModeContext, pairs: RankPairs, batch: StatedSizes, rows: RankRows) -> BatchSizes:
    """The sizes of a rank's batches of pairs, from the mode's statement for their number of seeds."""
    # The vertices of the pairs are any, so the largest of some batches is like the largest of all.
    of, some = pairs.begin(0), range(max(1, pairs.num_batches))[:_COUNTED]
    seeds = max(1, *(len(of(number).vertices) for number in some))
    # The ends of a pair may be any vertices, of any split and rank.
    sizes = batch({**context.options, "batch_size": seeds}, context.model.num_layers, replace(rows, training=seeds))
    return replace(sizes, num_batches=pairs.num_batches)


class StatedFeatures(FeatureView):
    """The features of batches of stated sizes, without values.

    Attributes:
        kept: rows of the batch in use, which are there until the parameters are updated; None if they are learned.
    """

    def __init__(self, context: ModeContext, sizes: BatchSizes, memory: Unwritten) -> None:
        self._context, self._sizes, self._memory = context, sizes, memory
        self.kept: Tensor | None = None

    def rows(self, vertices: NDArray[np.int64]) -> Tensor:
        model = self._context.model
        return self._memory.tensor((len(vertices), model.options.dims[0]), model.dtype)

    def ahead(self, vertices: NDArray[np.int64]) -> Tensor:
        has_rows = self._sizes.has_features and self._context.learned is None
        return self.rows(vertices if has_rows else vertices[:0])

    def in_step(self, vertices: NDArray[np.int64], ahead: Tensor) -> Tensor:  # noqa: ARG002 - of another batch
        learned, model = self._context.learned, self._context.model
        if learned is not None:
            # At most all rows come from other ranks, and the same number goes there.
            return self._fetched(len(vertices), len(vertices), learned.shape[1], learned.dtype).requires_grad_()
        fetches = self._sizes.fetches and self._context.given.samples is None
        given = len(vertices), int(self._sizes.asked), model.options.dims[0], model.dtype
        self.kept = self._fetched(*given) if fetches else self.rows(vertices)
        return self.kept

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

    def _fetched(self, count: int, asked: int, width: int, dtype: torch.dtype) -> Tensor:
        """Rows that a step fetches.

        Args:
            asked: number of rows from other ranks, to which the same number goes.
        """
        place = self._context.place
        feature = place.empty((count, width), dtype)
        if self._exchanges:
            copied = self._memory.tensor((int(self._sizes.copied), width), dtype)
            del copied
            moved = [place.empty((asked, width), dtype) for _ in range(2)]
            del moved
        return feature


class RehearsedBatches(Mode):
    """Steps on one batch, while the batches that are prepared ahead are in memory."""

    def __init__(self, context: ModeContext, sizes: BatchSizes, rows: RankRows, memory: Unwritten, ahead: int) -> None:
        """Prepare the batches.

        Args:
            rows: rows of the rank.
            ahead: batches in memory in addition to the one in use.
        """
        super().__init__(context)
        self._sizes, self._rows, self._memory = sizes, rows, memory
        self._pairs = RankPairs.of(context)
        self._alone = ProcessGrid(context.comm.group(0, 0, 1), {AXIS: 1}, context.place)
        drawn = NUMBERED * sizes.rows[0] + DRAWN * max(sizes.nonzeros)
        threads = 0 if context.given.samples else max(1, context.options["sampler_threads"])
        self._kept = [memory.array((round(sizes.kept_bytes + threads * drawn),), np.dtype(np.uint8))]
        # Without memory of its own: only its length counts.
        self._vertices = np.broadcast_to(np.int64(0), int(sizes.rows[0]))
        self._features = StatedFeatures(context, sizes, memory)
        self._ahead = [(self._prepared(), self._features.ahead(self._vertices)) for _ in range(ahead)]

    def train_epoch(self, epoch: int, update: Callable[[], None]) -> float:
        """See :meth:`Mode.train_epoch`: one step on one batch."""
        model, features, vertices = self.context.model, self._features, self._vertices
        of_pairs, operator = None if self._pairs is None else self._pair_loss(self._pairs, epoch), self._prepared()
        loss = self._vertex_loss(operator) if of_pairs is None else of_pairs
        model.epoch = epoch
        given = model, features, vertices, features.ahead(vertices[:0])
        form_gradients(*given, operator, loss, shrinks=self._sizes.is_layered)
        update()
        features.kept = None
        return 0.0

    def _pair_loss(self, pairs: RankPairs, epoch: int) -> StepLoss:
        """The loss of the first batch of pairs."""
        batch = pairs.begin(epoch)(0)
        # In another epoch, a batch may have more seeds than the counted batches.
        return pairs.loss(batch.pairs, batch.vertices[: max(0, int(self._sizes.rows[-1]) - 1)])

    def _vertex_loss(self, operator: SampledRows | LayeredOperator | RowsOnly) -> MaskedLoss:
        """The loss over the labels of a batch; all its vertices are in the training split."""
        count, label = int(self._sizes.rows[-1]), self.context.labels.label
        shapes = ((count, *label.shape[1:]), label.dtype), ((count,), torch.uint8)
        labels = Labels(*(self.context.place.lasting(*each) for each in shapes))
        loss = self.context.vertex_objective.loss(operator.layout(self.context.model.num_layers), labels)
        loss.divisor = 1.0
        return loss

    def scores(self) -> Tensor:
        if isinstance(self.context.given, StepInputs):
            model, count = self.context.model, len(self.context.labels.split)
            # The place goes through the first range only; others take the memory that it has taken.
            rows = OwnRows(model, self._features, np.broadcast_to(np.int64(0), count))
            run_pass(rows, count, [None, None], model.place)
        elif not isinstance(self.context.given, BatchInputs):
            return super().scores()
        elif self.context.model.takes_edges:
            # It has its own passes.
            super().scores()
        elif not can_stream(self.context.model):
            self._score_by_layer()
        measured = self.context.measured
        if self.streamed is not None:
            taken = self._memory.array((self.streamed.memory,), np.dtype(np.uint8))
            del taken
        count = len(self.context.labels.split if measured is None else measured)
        shape = count, self.context.objective.num_outputs
        return self.context.place.lasting(shape, self.context.model.dtype)

    def _score_by_layer(self) -> None:
        """Take the memory of one range of rows of each layer; as :mod:`gnnloom.trainer.passes.layerwise` does."""
        context, rows, model = self.context, self._rows, self.context.model
        operator = LayeredOperator(context.comm, model.num_layers, context.normalization, context.place)
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
            with model.multiplying_by(operator):
                layer_output(model, context.place.empty((columns, dim), model.dtype), layer)
            del drawn

    @cached_property
    def streamed(self) -> StatedBytes | None:
        """Bytes of an evaluation from disk; None if there is none, or if it takes a few rows per step."""
        context, rows = self.context, self.context.label_rows
        reads_batches = isinstance(context.given, BatchInputs)
        if not (reads_batches and isinstance(rows, RowShard) and can_stream(context.model)):
            return None
        measured = context.labels.split if context.measured is None else context.measured
        return stated_bytes(context.model, context.source, rows, len(measured))

    def finish(self) -> None:
        """Free the batches that are ahead: after the last epoch, no others are prepared."""
        self._ahead.clear()

    def _prepared(self) -> SampledRows | LayeredOperator | RowsOnly:
        """The products of a batch."""
        if isinstance(self.context.given, StepInputs):
            return RowsOnly(self._alone, np.zeros(int(self._sizes.rows[0]), np.int64))
        return self._layered() if self._sizes.is_layered else self._one_matrix()

    def _one_matrix(self) -> SampledRows:
        context, sizes = self.context, self._sizes
        count, received = int(sizes.rows[0]), int(sizes.received)
        grid, offsets, nonzeros = self._alone, np.zeros(2, np.int64), sizes.nonzeros[0]
        if received:
            grid, offsets = context.operator.grid, even_offsets(context.comm.size + 1, received)
        halo = nonzeros * received / max(1, count + received)
        rows = self._memory.array((received,), np.dtype(np.int64))
        matrix = ShardMatrix(
            self._csr(count, count, nonzeros - halo, sizes.loops),
            self._csr(count, received, halo),
            rows,
            offsets,
            rows,
            offsets,
        )
        same = context.shards.symmetric and not context.options.get("presamples")
        transpose = matrix if same else replace(matrix, own=self._csr(count, count, nonzeros - halo))
        factors = context.place.lasting((count,), context.place.sum_dtype)
        given = BatchRows(np.zeros(count, np.int64), matrix, transpose, Scaling(factors, factors))
        return SampledRows(grid, given, multiplies=type(context.model).multiplies)

    def _layered(self) -> LayeredOperator:
        context, sizes = self.context, self._sizes
        rows = [int(each) for each in sizes.rows]
        if context.model.takes_edges:
            graph = self._weighted(edges_alike(rows, [round(each) for each in sizes.nonzeros], round(sizes.loops)))
            # Neighbors are drawn once, so that the layers have the leading rows of the same graph.
            blocks = tuple(_leading(graph, count, width) for width, count in pairwise(rows))
        else:
            blocks = tuple(
                self._csr(after, before, each)
                for (before, after), each in zip(pairwise(rows), sizes.nonzeros, strict=True)
            )
        operator = LayeredOperator(context.comm, context.model.num_layers, context.normalization, context.place)
        vertices = np.zeros(rows[0], np.int64)
        operator.load(LayeredBatch(vertices, blocks, vertices.copy(), np.ones(rows[0])))
        return operator

    def _csr(self, num_rows: int, num_columns: int, nonzeros: float, loops: float = 0.0) -> CSR:
        if self.context.model.takes_edges:
            return self._weighted(edges_alike([num_columns, num_rows], [round(nonzeros)], round(loops)))
        indices = self._memory.array((round(nonzeros),), index_dtype(num_columns))
        return CSR(0, even_offsets(num_rows + 1, round(nonzeros)), indices, None, num_columns)

    def _weighted(self, graph: CSR) -> CSR:
        """The same edges, with weights without values if the run's graph has weights."""
        if not self.context.shards.weighted:
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
