"""What an algorithm is to the models: two products and the layouts that they work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.partial_parameters import Place


@dataclass(frozen=True)
class LayerPlan:
    """What a model asks of its operator.

    Attributes:
        dims: widths from the input features to the classes.
        propagates_first: for every layer whether it is (A H) W.
        input_needs_gradient: the first layer's products have adjoints with respect to the features.
    """

    dims: tuple[int, ...]
    propagates_first: tuple[bool, ...]
    input_needs_gradient: bool = False

    @property
    def num_layers(self) -> int:
        return len(self.propagates_first)

    @property
    def products(self) -> list[tuple[int, bool]]:
        """Layers whose adjacency is multiplied with, forward (False) and backward (True)."""
        first = 0 if self.input_needs_gradient or not self.propagates_first[0] else 1
        backward = [(layer, True) for layer in range(first, self.num_layers)]
        return [(layer, False) for layer in range(self.num_layers)] + backward


class Operator(Protocol):
    """The normalized adjacency, spread over the ranks of a grid.

    Both products are differentiable and collective, forward and backward; every rank must form the
    same products in the same order.

    Attributes:
        weight_axes: axes along which the gradients of a parameter that all ranks hold add up to the whole one.
    """

    grid: ProcessGrid
    weight_axes: tuple[str, ...]

    def layout(self, layer: int) -> Layout:
        """Layout of the input of layer ``layer``, which is the output of the one before."""
        ...

    def product_layouts(self, layer: int) -> tuple[Layout, Layout]:
        """Layouts of what :meth:`propagate` takes in a layer and of what it gives."""
        ...

    def align(self, features: Tensor, source: Layout, target: Layout, dim: int) -> Tensor:
        """A matrix of width ``dim`` in another layout, exactly; differentiable. Collective."""
        ...

    def release(self, layer: int) -> None:
        """Forget what :meth:`propagate` alone needs in a layer, as it will not be called for it again."""
        ...

    def weight_place(self, layer: int, shape: tuple[int, int]) -> Place | None:
        """The part of a layer's (input dim, output dim) weight that this rank holds; None for all of it."""
        ...

    def propagate(self, features: Tensor, layer: int) -> Tensor:
        """The normalized adjacency times ``features``; both in this rank's share. Collective.

        Args:
            features: (num_rows, dim) of the layer's layout.
        """
        ...

    def transform(self, features: Tensor, weight: Tensor, layer: int) -> Tensor:
        """``features`` times the layer's weight, in this rank's share. Collective.

        Args:
            features: (num_rows, input dim) of the layer's layout.
            weight: this rank's part of the (input dim, output dim) weight.
        """
        ...
