"""Runs the layers of a model on a rank's rows: passes over ranges of rows, and products in blocks of columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from gnnloom.storage.meters import ProgressMeter
from gnnloom.trainer.models.networks.model import Model
from gnnloom.trainer.passes.column_blocks import ColumnBlocks, Storage
from gnnloom.trainer.passes.passes import Out, run_pass
from gnnloom.trainer.passes.program import FEATURES, Multiply, Program, RunLayers, run_rows
from gnnloom.trainer.passes.range_operator import RangeOperator
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.propagation.adjacency_product import AdjacencyProduct


class Rows(Protocol):
    """Whole rows of a matrix."""

    def rows(self, start: int, stop: int) -> Tensor:
        """(stop - start, dim) rows, which the caller may overwrite."""
        ...


@dataclass(frozen=True)
class Outputs:
    """Outputs of a model for a rank's rows.

    Attributes:
        scores: (num_rows, num_outputs) of the dtype of sums, of all rows or of the requested ones.
        embedding: (num_rows, last hidden width) the last layer's input, of the dtype of sums; None if it is not wanted
            or there is only one layer.
        check: compares both with their checksums, if they are in files; raises CorruptError.
    """

    scores: Tensor
    embedding: Tensor | None
    check: Callable[[], None]


class StreamedLayers:
    """The layers of a model over a rank's rows, which are in order and whole."""

    def __init__(
        self,
        model: Model,
        operator: RangeOperator,
        product: AdjacencyProduct,
        feature: Rows,
        storage: Storage,
    ) -> None:
        """Communicates nothing.

        Args:
            operator: the model's operator.
            product: product with the adjacency; it has the ids of this rank's rows.
            feature: input features of the rows, in the dtype of features.
        """
        self._model, self._operator, self._product, self._vertex = model, operator, product, product.layout.vertex
        self._storage, self._place = storage, product.place
        self._feature = feature
        self._matrices = dict[int, ColumnBlocks]()
        self._embedding: ColumnBlocks | None = None

    def run(self, program: Program, *, embeds: bool = False, scored: Tensor | None = None) -> Outputs:
        """The outputs for all rows. Collective.

        Args:
            embeds: keep the embedding.
            scored: (num_scored,) int64 rows whose scores are wanted, ascending; None for all.

        Raises:
            BudgetError: the disk has no room for a matrix.
        """
        model, last = self._model, self._model.num_layers - 1
        matrix = self._whole(model.options.dims[-1], None if scored is None else len(scored))
        scores = matrix.put if scored is None else _put_some(matrix, scored, self.ranges(), self._place)
        if embeds and last:
            self._embedding = self._whole(model.options.dims[last])
        meter = ProgressMeter("layers", sum(self._num_parts(program, step) for step in program.steps))
        for step, freed in zip(program.steps, program.freed, strict=True):
            for number in step.written:
                stored = program.matrices[number]
                self._matrices[number] = self._new(stored.dim, stored.dtype(self._place))
            if isinstance(step, RunLayers):
                self._pass(step, scores, meter)
            else:
                self._multiply(step, meter, drops=step.operand in freed)
            for number in freed:
                del self._matrices[number]
        if scored is not None:
            matrix.end(0)
        results = [matrix, *([] if self._embedding is None else [self._embedding])]

        def check() -> None:
            for result in results:
                result.check()

        return Outputs(matrix.mapped(), None if self._embedding is None else self._embedding.mapped(), check)

    def _num_parts(self, program: Program, step: RunLayers | Multiply) -> int:
        """Number of ranges of rows, or of blocks of columns, of a step."""
        if isinstance(step, RunLayers):
            return len(self.ranges())
        dim = program.matrices[step.operand].dim
        return 1 if self._storage.folder is None else -(-dim // self._storage.width)

    def input_dim(self, layer: int) -> int:
        """Width of a layer's input."""
        return self._model.options.dims[layer]

    def ranges(self) -> list[tuple[int, int]]:
        """First row of every range, and the row after its last."""
        count, most = len(self._vertex), self._storage.range_rows
        return [(start, min(start + most, count)) for start in range(0, count, most)]

    def run_range(
        self, step: RunLayers, start: int, given: Tensor, known: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor | None]:
        """See :func:`gnnloom.trainer.passes.program.run_rows`; keeps the embedding.

        Args:
            start: the first of the rows.
        """
        vertex, embedding = self._vertex[start : start + len(given)], self._embedding
        embed = None if embedding is None else lambda rows: embedding.put(start, self._model.as_sums(rows))
        return run_rows(self._model, self._operator, step, vertex, given, known, embed)

    def _pass(self, step: RunLayers, scores: Out, meter: ProgressMeter) -> None:
        """Write the scores, or the input of a later layer and the operand of that layer's product."""
        outs: list[Out | None] = [None if number is None else self._matrices[number].put for number in step.outs]
        run_pass(_Ranges(self, step, meter), len(self._vertex), outs or [scores], self._place)

    def input_rows(self, step: RunLayers, start: int, stop: int) -> Tensor:
        """(stop - start, dim) rows of the input of the first layer of a pass."""
        if step.input is None:
            # No step reads the input, or no step reads the result.
            return self._place.empty((stop - start, self._model.options.dims[step.layer]), self._place.feature_dtype)
        source: Rows = self._feature if step.input == FEATURES else self._matrices[step.input]
        return source.rows(start, stop)

    def known_rows(self, step: RunLayers, start: int, stop: int) -> list[Tensor]:
        """Rows of the known products of a pass."""
        return [self._matrices[number].rows(start, stop) for number in step.known]

    def _multiply(self, step: Multiply, meter: ProgressMeter, *, drops: bool) -> None:
        """Collective."""
        operand, product = self._matrices[step.operand], self._matrices[step.product]
        as_sums = product.dtype != operand.dtype
        for number in range(operand.num_blocks):
            out = product.product(number, self._product.row_bounds)
            self._product.multiply_into(operand.block(number), out, as_sums=as_sums)
            product.end(number)
            meter.advance()
            if drops:
                operand.drop(number)

    def _new(self, dim: int, dtype: torch.dtype) -> ColumnBlocks:
        return ColumnBlocks((len(self._vertex), dim), dtype, self._storage, self._place)

    def _whole(self, dim: int, count: int | None = None) -> ColumnBlocks:
        """A matrix in whole rows, of the dtype of sums.

        Args:
            count: number of rows; by default the rows of this rank.
        """
        storage = replace(self._storage, width=dim)
        shape = (len(self._vertex) if count is None else count, dim)
        return ColumnBlocks(shape, self._model.dtype, storage, self._place)


class _Ranges:
    """See :class:`gnnloom.trainer.passes.passes.Pass`: a pass over rows of this rank's matrices."""

    def __init__(self, layers: StreamedLayers, step: RunLayers, meter: ProgressMeter) -> None:
        self._layers, self._step, self._meter = layers, step, meter
        self._ends = dict(layers.ranges())

    def next(self, start: int) -> tuple[int, tuple[int, int]]:
        return self._ends[start], (start, self._ends[start])

    def read(self, given: tuple[int, int]) -> tuple[Tensor, list[Tensor]]:
        return self._layers.input_rows(self._step, *given), self._layers.known_rows(self._step, *given)

    def outputs(self, given: tuple[int, int], rows: tuple[Tensor, list[Tensor]]) -> Sequence[Tensor]:
        found, operand = self._layers.run_range(self._step, given[0], *rows)
        self._meter.advance()
        return [found] if operand is None else [found, operand]


def _put_some(matrix: ColumnBlocks, rows: Tensor, ranges: list[tuple[int, int]], place: Place) -> Out:
    """A function that writes only the scores that a metric reads, for graphs of any size.

    Args:
        matrix: (num_scored, num_outputs), in whole rows.
        rows: (num_scored,) int64, ascending.
        ranges: ranges of all rows, in which rows arrive.
    """

    def positions(*starts: int) -> Tensor:
        return torch.searchsorted(rows, place.tensor(starts, torch.int64))

    write = matrix.ranges(positions(*(start for start, _ in ranges)).tolist())

    def put(start: int, scores: Tensor) -> None:
        first, last = positions(start, start + len(scores)).tolist()
        if first < last:
            write(first, scores.index_select(0, rows[first:last] - start))

    return put
