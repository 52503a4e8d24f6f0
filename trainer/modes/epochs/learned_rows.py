"""Learned input features of batches of any vertices: rows come from their ranks, and gradients go back to them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.local_numbers import LocalNumbers
from gnnloom.trainer.data.row_exchange import RowExchange
from gnnloom.trainer.layout.partial_parameters import PartialParameter, RowGradient
from gnnloom.trainer.modes.epochs.mode import ModeContext
from gnnloom.trainer.place.place import Place


class LearnedRows:
    """Fetches rows of the parameter as they are now; in every step, all ranks make the same calls.

    Attributes:
        exchange: of these rows; rows that change are not cached on other ranks.
    """

    def __init__(self, context: ModeContext, parameter: PartialParameter, owner: NDArray[np.int32] | None) -> None:
        """Communicates nothing.

        Args:
            parameter: this rank's rows.
            owner: (n,) int32 rank of every vertex; None if this rank owns all.
        """
        self._parameter, self._place = parameter, context.place
        own = LocalNumbers.of(context.operator.layout(0).vertex)
        self.exchange = RowExchange(context.comm, own, parameter.detach(), owner, context.place)

    def fetch(self, vertices: NDArray[np.int64]) -> Tensor:
        """(num_vertices, width) the features of some vertices, of which a backward pass forms the gradient. Collective.

        Args:
            vertices: (num_vertices,) int64, each at most once.
        """
        return self.exchange.fetch(vertices).requires_grad_()

    def give_back(self, vertices: NDArray[np.int64], feature: Tensor) -> None:
        """Send gradients to the ranks of the rows, each of which adds up those of its rows, rank by rank. Collective.

        Args:
            vertices: (num_vertices,) int64, as they were fetched.
            feature: what was fetched, after the backward pass.
        """
        rows, values = self.exchange.give_back(vertices, gradient_of(feature, self._place))
        self._parameter.row_gradient = RowGradient.summed(rows, values, self._place)


def gradient_of(feature: Tensor, place: Place) -> Tensor:
    """The gradient of fetched rows; zeros if the loss did not need them, as on a rank whose batch is empty."""
    return place.zeros(feature.shape, feature.dtype) if feature.grad is None else feature.grad
