"""What an algorithm is to the models: two products and the layouts that they work on."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from gnnloom.trainer.comm import Communicator
from gnnloom.trainer.layout import Layout
from gnnloom.trainer.process_grid import ProcessGrid


class Operator(Protocol):
    """The normalised adjacency, spread over the ranks of a grid.

    Both products are differentiable and collective, forward and backward; every rank must form the
    same products in the same order.
    """

    grid: ProcessGrid

    @property
    def weight_group(self) -> Communicator:
        """The ranks whose gradients of a weight add up to the whole gradient."""
        ...

    def layout(self, layer: int) -> Layout:
        """Layout of the input of layer ``layer``, which is the output of the one before."""
        ...

    def propagate(self, features: Tensor, layer: int) -> Tensor:
        """The normalised adjacency times ``features``; both in this rank's share. Collective.

        Args:
            features: (num_rows, dim) of the layer's layout.
        """
        ...

    def transform(self, features: Tensor, weight: Tensor, layer: int) -> Tensor:
        """``features`` times ``weight``, in this rank's share. Collective.

        Args:
            features: (num_rows, input dim) of the layer's layout.
            weight: (input dim, output dim).
        """
        ...
