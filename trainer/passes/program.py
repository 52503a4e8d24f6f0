"""Plans the steps that compute a model's layers from disk: passes over ranges of rows, and products between them.

A layer is run on one row to find out which products it requests. That determines which matrices are stored, and when
they are freed; the same steps are run, and counted for memory, disk space and time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.models.networks.model import Inputs, Model
from gnnloom.trainer.passes.live_bytes import LiveBytes
from gnnloom.trainer.passes.range_operator import RangeOperator, WantedProduct
from gnnloom.trainer.place.place import Place

#: Number of the matrix of the input features, which are already stored.
FEATURES = 0
#: Copies of a range of features while they are read: before and after a conversion.
_READ_COPIES: Final = 2
#: Rows of a range whose tensors are counted: few rows, but a number that is hardly the width of a layer, so that such
#: tensors are recognized.
_COUNTED_ROWS: Final = 61


@dataclass(frozen=True)
class WantedShape:
    """A product that a layer requests.

    Attributes:
        dim: number of columns.
        as_sums: it is wanted in the dtype of sums.
        is_input: the adjacency is multiplied by the layer's unchanged input.
    """

    dim: int
    as_sums: bool
    is_input: bool


@dataclass(frozen=True)
class StepMatrix:
    """A matrix between two steps: its columns, and whether it has the dtype of sums rather than of features."""

    dim: int
    is_sums: bool = False

    def dtype(self, place: Place) -> torch.dtype:
        """Dtype of the program's numbers on a place."""
        return place.sum_dtype if self.is_sums else place.feature_dtype

    def row_bytes(self, place: Place) -> int:
        """Bytes of one row on a place."""
        return self.dim * self.dtype(place).itemsize


@dataclass(frozen=True)
class RunLayers:
    """Runs layers on all rows, a range at a time, up to the next unknown product.

    Attributes:
        layer: the first layer.
        input: number of the matrix of its input; None if the layer needs only known products of it.
        known: numbers of its products with the adjacency, in the order of its requests.
        target: the layer that requests the next product; the number of layers if there is none.
        operand: number of the matrix that is written for this product; None if there is none.
        kept: number of the matrix that is written with the input of the layer ``target``; may be the same.
    """

    layer: int
    input: int | None
    known: tuple[int, ...]
    target: int
    operand: int | None = None
    kept: int | None = None

    @property
    def read(self) -> list[int]:
        return [*(() if self.input is None else (self.input,)), *self.known]

    @property
    def outs(self) -> list[int | None]:
        """Matrices of the input of the layer ``target``, and of the operand of its product; none at the end."""
        if self.operand is None:
            return []
        return [self.kept, None if self.operand == self.kept else self.operand]

    @property
    def written(self) -> list[int]:
        return sorted(each for each in self.outs if each is not None)


@dataclass(frozen=True)
class Multiply:
    """Multiplies the adjacency by a matrix, one block of columns at a time."""

    operand: int
    product: int

    @property
    def read(self) -> list[int]:
        return [self.operand]

    @property
    def written(self) -> list[int]:
        return [self.product]


Step = RunLayers | Multiply


@dataclass(frozen=True)
class Program:
    """Program that computes the layers of a model.

    Attributes:
        dims: widths from the input features to the outputs.
        steps: passes and products.
        matrices: matrices that the steps read and write, by number.
        freed: for each step, the matrices that no later step reads.
        range_row_bytes: maximum bytes per row of a range in all tensors of a pass at one time.
    """

    dims: Sequence[int]
    steps: Sequence[Step]
    matrices: Sequence[StepMatrix]
    freed: Sequence[Sequence[int]]
    range_row_bytes: int


def write_program(model: Model, operator: RangeOperator) -> Program:
    """The steps of a model in evaluation mode, without gradients. Communicates nothing; the same on every rank."""
    wanted = [_wanted(model, operator, layer) for layer in range(model.num_layers)]
    writer = _Writer(model, wanted)
    steps = writer.steps()
    last = {number: place for place, step in enumerate(steps) for number in (*step.read, *step.written)}
    freed = [[number for number, end in last.items() if end == place and number] for place in range(len(steps))]
    most = max(_row_bytes(model, operator, step, writer.matrices) for step in steps if isinstance(step, RunLayers))
    reading = _READ_COPIES * model.options.dims[0] * operator.place.sum_dtype.itemsize
    return Program(model.options.dims, steps, writer.matrices, freed, max(math.ceil(most), reading))


class _Writer:
    def __init__(self, model: Model, wanted: Sequence[Sequence[WantedShape]]) -> None:
        self._model, self._wanted = model, wanted
        self.matrices = [StepMatrix(model.options.dims[0])]

    def steps(self) -> list[Step]:
        """A pass, then alternately a product and a pass until no layer requests another product."""
        steps, layer, known = list[Step](), 0, tuple[int, ...]()
        found: int | None = FEATURES
        while True:
            given = found if not known or self._reads_input(layer) else None
            target = self._target(layer, len(known))
            if target == self._model.num_layers:
                return [*steps, RunLayers(layer, given, known, target)]
            enters = target > layer
            wanted = self._wanted[target][0 if enters else len(known)]
            kept = None
            # The features can be read again, but only in whole rows.
            if (enters and (wanted.is_input or self._reads_input(target))) or (wanted.is_input and found == FEATURES):
                kept = self._new(self._model.options.dims[target])
            found = kept if enters or kept else found
            operand = found if wanted.is_input and found is not None else self._new(wanted.dim)
            # A layer may multiply by its input several times.
            if kept or not wanted.is_input:
                steps.append(RunLayers(layer, given, known, target, operand, kept))
            product = self._new(wanted.dim, is_sums=wanted.as_sums)
            steps.append(Multiply(operand, product))
            layer, known = target, (product,) if enters else (*known, product)

    def _target(self, layer: int, num_known: int) -> int:
        """The layer that requests the next product."""
        if num_known < len(self._wanted[layer]):
            return layer
        later = range(layer + 1, self._model.num_layers)
        return next((each for each in later if self._wanted[each]), self._model.num_layers)

    def _reads_input(self, layer: int) -> bool:
        """Whether a layer needs its input in addition to the first product."""
        model = self._model
        if model.needs_features or model.adds_input(layer) or len(self._wanted[layer]) > 1:
            return True
        # A user's class declares this only for the first layer.
        return not (model.keeps_product and (layer == 0 or model.reuses_memory))

    def _new(self, dim: int, *, is_sums: bool = False) -> int:
        self.matrices.append(StepMatrix(dim, is_sums))
        return len(self.matrices) - 1


def _wanted(model: Model, operator: RangeOperator, layer: int) -> list[WantedShape]:
    """The products that a layer requests, found with a row of zeros."""
    place, vertex = operator.place, np.zeros(1, np.int64)
    found, products = list[WantedShape](), list[Tensor]()
    while True:
        rows = place.lasting((1, model.options.dims[layer]), place.feature_dtype)
        operator.load(vertex, [product.clone() for product in products])
        try:
            layer_output(model, rows, layer)
        except WantedProduct as wanted:
            features = wanted.features
            is_input = features.data_ptr() == rows.data_ptr() and features.shape == rows.shape
            found.append(WantedShape(features.shape[1], wanted.as_sums, is_input))
            dtype = place.sum_dtype if wanted.as_sums else features.dtype
            products.append(place.lasting(tuple(features.shape), dtype))
        else:
            return found


def layer_output(model: Model, rows: Tensor, layer: int) -> Tensor:
    """The input of the next layer, or the scores.

    Args:
        rows: (num_rows, dim) input of a layer.
    """
    inputs = Inputs(model.as_features(rows))
    if layer == model.num_layers - 1:
        return model.classify(inputs)
    hidden = model.hidden_layer(inputs, layer)
    return (model.as_embedding(hidden) if layer == model.num_layers - 2 else hidden).value


def run_rows(
    model: Model,
    operator: RangeOperator,
    step: RunLayers,
    vertex: NDArray[np.int64],
    given: Tensor,
    known: Sequence[Tensor],
    embed: Callable[[Tensor], None] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Run the layers of a pass on some rows. Communicates nothing.

    Args:
        vertex: (count,) int64 ids of the rows.
        given: (count, dim) input of the first layer.
        known: rows of its products.
        embed: called with the input of the last layer, if the pass enters it.

    Returns:
        The input of the layer ``target``, and the operand of its product; the scores and None at the end.
    """
    layer, rows = step.layer, given
    while layer < model.num_layers:
        operator.load(vertex, known)
        try:
            rows = layer_output(model, rows, layer)
        except WantedProduct as wanted:
            return rows, wanted.features
        layer, known = layer + 1, ()
        if layer == model.num_layers - 1 and embed is not None:
            embed(rows)
    return rows, None


def _row_bytes(model: Model, operator: RangeOperator, step: RunLayers, matrices: Sequence[StepMatrix]) -> float:
    """Bytes of the tensors that a pass has at a time for each row of a range, counted with rows of zeros."""
    place, count = operator.place, _COUNTED_ROWS
    with (live := LiveBytes(count)):
        given = place.lasting((count, model.options.dims[step.layer]), place.feature_dtype)
        stored = [matrices[number] for number in step.known]
        known = [place.lasting((count, each.dim), each.dtype(place)) for each in stored]
        result = run_rows(model, operator, step, np.zeros(count, np.int64), given, known)
        # A block that is not the whole matrix is made contiguous before it is written: at most half of the columns.
        for each in result:
            copy = None if each is None else each[:, ::2].contiguous()
            del copy
    return live.peak / count
