"""Runs the layers of a model on a rank's rows: passes over ranges of rows, and products in blocks of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from gnnloom.trainer.models.networks.model import Model
from gnnloom.trainer.propagation.adjacency_product import AdjacencyProduct
from gnnloom.trainer.streaming.column_blocks import ColumnBlocks, Storage
from gnnloom.trainer.streaming.program import FEATURES, Multiply, Pass, Program, layer_output
from gnnloom.trainer.streaming.range_operator import RangeOperator, WantedProduct


class Rows(Protocol):
    """Whole rows of a matrix."""

    def rows(self, start: int, stop: int) -> Tensor:
        """(stop - start, dim) rows, which are the caller's to overwrite."""
        ...


@dataclass(frozen=True)
class Outputs:
    """What a model has found out about a rank's rows.

    Attributes:
        scores: (num_rows, num_outputs), of the dtype of sums.
        embedding: (num_rows, last hidden width) the last layer's input, of the dtype of sums; None if it is not wanted
            or there is only one layer.
    """

    scores: Tensor
    embedding: Tensor | None


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

    def run(self, program: Program, *, embeds: bool = False) -> Outputs:
        """The outputs for all rows. Collective.

        Args:
            embeds: keep the embedding.

        Raises:
            BudgetError: the disk has no room for a matrix.
        """
        model, last = self._model, self._model.num_layers - 1
        scores = self._whole(model.options.dims[-1])
        if embeds and last:
            self._embedding = self._whole(model.options.dims[last])
        for step, freed in zip(program.steps, program.freed, strict=True):
            for number in step.written:
                stored = program.matrices[number]
                dtype = self._place.sum_dtype if stored.is_sums else self._place.feature_dtype
                self._matrices[number] = self._new(stored.dim, dtype)
            if isinstance(step, Pass):
                self._pass(step, scores)
            else:
                self._multiply(step, drops=step.operand in freed)
            for number in freed:
                del self._matrices[number]
        embedding = None if self._embedding is None else self._embedding.mapped(0)
        return Outputs(scores.mapped(0), embedding)

    def input_dim(self, layer: int) -> int:
        """Width of a layer's input."""
        return self._model.options.dims[layer]

    def ranges(self) -> list[tuple[int, int]]:
        """First row of every range, and the one after its last."""
        count, most = len(self._vertex), self._storage.range_rows
        return [(start, min(start + most, count)) for start in range(0, count, most)]

    def run_range(self, step: Pass, start: int, given: Tensor, known: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """Run the layers of a pass on some rows. Communicates nothing.

        Args:
            start: the first of the rows.
            given: (count, dim) input of the first layer.
            known: rows of its products.

        Returns:
            The input of the layer ``target``, and what it multiplies with; the scores and None at the end.
        """
        model, operator, layer, rows = self._model, self._operator, step.layer, given
        vertex = self._vertex[start : start + len(given)]
        while layer < model.num_layers:
            operator.load(vertex, known)
            try:
                rows = layer_output(model, rows, layer)
            except WantedProduct as wanted:
                return rows, wanted.features
            layer, known = layer + 1, ()
            if layer == model.num_layers - 1 and self._embedding is not None:
                self._embedding.put(start, model.as_sums(rows))
        return rows, None

    def _pass(self, step: Pass, scores: ColumnBlocks) -> None:
        for start, stop in self.ranges():
            given = self._input_rows(step, start, stop)
            known = [self._matrices[number].rows(start, stop) for number in step.known]
            rows, operand = self.run_range(step, start, given, known)
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

    def _multiply(self, step: Multiply, *, drops: bool) -> None:
        """Collective."""
        operand, product = self._matrices[step.operand], self._matrices[step.product]
        as_sums = product.dtype != operand.dtype
        for number in range(operand.num_blocks):
            out = product.mapped(number)
            self._product.multiply(operand.block(number), as_sums=as_sums, out=out)
            product.seal(number, out)
            if drops:
                operand.drop(number)

    def _new(self, dim: int, dtype: torch.dtype) -> ColumnBlocks:
        return ColumnBlocks((len(self._vertex), dim), dtype, self._storage, self._place)

    def _whole(self, dim: int) -> ColumnBlocks:
        """A matrix in whole rows, of the dtype of sums."""
        storage = replace(self._storage, width=dim)
        return ColumnBlocks((len(self._vertex), dim), self._model.dtype, storage, self._place)
