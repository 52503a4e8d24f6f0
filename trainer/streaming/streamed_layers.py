"""Runs the layers of a model on a rank's rows: passes over ranges of rows, and products in blocks of columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from gnnloom.storage.meters import ProgressMeter
from gnnloom.trainer.models.networks.model import Model
from gnnloom.trainer.place.arrays import as_array
from gnnloom.trainer.propagation.adjacency_product import AdjacencyProduct
from gnnloom.trainer.streaming.column_blocks import ColumnBlocks, Storage
from gnnloom.trainer.streaming.program import FEATURES, Multiply, Pass, Program, run_pass
from gnnloom.trainer.streaming.range_operator import RangeOperator


class Rows(Protocol):
    """Whole rows of a matrix."""

    def rows(self, start: int, stop: int) -> Tensor:
        """(stop - start, dim) rows, which are the caller's to overwrite."""
        ...


@dataclass(frozen=True)
class Outputs:
    """Outputs of a model for a rank's rows.

    Attributes:
        scores: (num_rows, num_outputs), or of the rows that were asked for, of the dtype of sums.
        embedding: (num_rows, last hidden width) the last layer's input, of the dtype of sums; None if it is not wanted
            or there is only one layer.
        check: compares both with what was written to their files, if they are in files; raises CorruptError.
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
            operator: that the model multiplies with.
            product: with the adjacency; it has the ids of this rank's rows.
            feature: their input features, of the dtype of features.
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
            scored: (num_scored,) int64 the rows whose scores are wanted, ascending; None for all.

        Raises:
            BudgetError: the disk has no room for a matrix.
        """
        model, last = self._model, self._model.num_layers - 1
        scores = self._scores(scored)
        if embeds and last:
            self._embedding = self._whole(model.options.dims[last])
        meter = ProgressMeter("layers", sum(self._num_parts(program, step) for step in program.steps))
        for step, freed in zip(program.steps, program.freed, strict=True):
            for number in step.written:
                stored = program.matrices[number]
                self._matrices[number] = self._new(stored.dim, stored.dtype(self._place))
            if isinstance(step, Pass):
                self._pass(step, scores, meter)
            else:
                self._multiply(step, meter, drops=step.operand in freed)
            for number in freed:
                del self._matrices[number]
        results = [scores.finished(), *([] if self._embedding is None else [self._embedding])]

        def check() -> None:
            for matrix in results:
                matrix.check()

        return Outputs(results[0].mapped(), None if self._embedding is None else self._embedding.mapped(), check)

    def _num_parts(self, program: Program, step: Pass | Multiply) -> int:
        """Number of ranges of rows, or of blocks of columns, of a step."""
        if isinstance(step, Pass):
            return len(self.ranges())
        dim = program.matrices[step.operand].dim
        return 1 if self._storage.folder is None else -(-dim // self._storage.width)

    def input_dim(self, layer: int) -> int:
        """Width of a layer's input."""
        return self._model.options.dims[layer]

    def ranges(self) -> list[tuple[int, int]]:
        """First row of every range, and the one after its last."""
        count, most = len(self._vertex), self._storage.range_rows
        return [(start, min(start + most, count)) for start in range(0, count, most)]

    def run_range(self, step: Pass, start: int, given: Tensor, known: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """See :func:`gnnloom.trainer.streaming.program.run_pass`; keeps the embedding.

        Args:
            start: the first of the rows.
        """
        vertex, embedding = self._vertex[start : start + len(given)], self._embedding
        embed = None if embedding is None else lambda rows: embedding.put(start, self._model.as_sums(rows))
        return run_pass(self._model, self._operator, step, vertex, given, known, embed)

    def _scores(self, rows: Tensor | None) -> AllScores | SomeScores:
        count, dim = len(self._vertex) if rows is None else len(rows), self._model.options.dims[-1]
        matrix = self._whole(dim, count)
        return AllScores(matrix) if rows is None else SomeScores(matrix, rows, self.ranges())

    def _pass(self, step: Pass, scores: AllScores | SomeScores, meter: ProgressMeter) -> None:
        for start, stop in self.ranges():
            given = self._input_rows(step, start, stop)
            known = [self._matrices[number].rows(start, stop) for number in step.known]
            rows, operand = self.run_range(step, start, given, known)
            meter.advance()
            if operand is None:
                scores.put(start, rows)
                continue
            if step.kept is not None:
                self._matrices[step.kept].put(start, rows)
            if step.operand is not None and step.operand != step.kept:
                self._matrices[step.operand].put(start, operand)

    def _input_rows(self, step: Pass, start: int, stop: int) -> Tensor:
        if step.input is None:
            # Nothing reads them, or nothing reads what comes of them.
            return self._place.empty((stop - start, self._model.options.dims[step.layer]), self._place.feature_dtype)
        source: Rows = self._feature if step.input == FEATURES else self._matrices[step.input]
        return source.rows(start, stop)

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
            count: its rows; as many as this rank has by default.
        """
        storage = replace(self._storage, width=dim)
        shape = (len(self._vertex) if count is None else count, dim)
        return ColumnBlocks(shape, self._model.dtype, storage, self._place)


class AllScores:
    """The scores of all rows."""

    def __init__(self, matrix: ColumnBlocks) -> None:
        self._matrix = matrix

    def put(self, start: int, rows: Tensor) -> None:
        """Write the scores of a range of rows."""
        self._matrix.put(start, rows)

    def finished(self) -> ColumnBlocks:
        """All scores, once they are written."""
        return self._matrix


class SomeScores:
    """The scores of some rows: of those that a metric reads, whatever the graph's size."""

    def __init__(self, matrix: ColumnBlocks, rows: Tensor, ranges: list[tuple[int, int]]) -> None:
        """Make them without values.

        Args:
            matrix: (num_scored, num_outputs), in whole rows.
            rows: (num_scored,) int64, ascending.
            ranges: in which the rows come, of all rows.
        """
        self._matrix, self._rows = matrix, rows
        self._write = matrix.ranges(np.searchsorted(as_array(rows), [start for start, _ in ranges]))

    def put(self, start: int, rows: Tensor) -> None:
        """Write the scores of a range of rows, as far as they are wanted."""
        first, last = np.searchsorted(as_array(self._rows), [start, start + len(rows)]).tolist()
        if first < last:
            self._write(first, rows.index_select(0, self._rows[first:last] - start))

    def finished(self) -> ColumnBlocks:
        """The scores, once they are written."""
        self._matrix.end(0)
        return self._matrix
