"""The interface between models and algorithms: two products, and their layouts.

Imports no torch: planning also uses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from gnnloom.trainer.comm.process_grid import ProcessGrid
    from gnnloom.trainer.layout.layout import Layout
    from gnnloom.trainer.layout.partial_parameters import ParameterPiece


@dataclass(frozen=True)
class LayerPlan:
    """Requirements of a model for its operator.

    Attributes:
        dims: widths from the input features to the classes.
        propagates_first: for every layer, whether it is (A H) W instead of A (H W).
        input_needs_gradient: the first layer's products need adjoints with respect to the features.
    """

    dims: tuple[int, ...]
    propagates_first: tuple[bool, ...]
    input_needs_gradient: bool = False

    @property
    def num_layers(self) -> int:
        return len(self.propagates_first)

    @property
    def products(self) -> list[tuple[int, bool]]:
        """The products with the adjacency: (layer, False) forward, (layer, True) with the transpose, backward."""
        # Backward, a first layer A (H W) multiplies with the transpose for the gradient of W; (A H) W needs the
        # transpose only for the gradient of H.
        first = 0 if self.input_needs_gradient or not self.propagates_first[0] else 1
        backward = [(layer, True) for layer in range(first, self.num_layers)]
        return [(layer, False) for layer in range(self.num_layers)] + backward


class Operator(Protocol):
    """The normalized adjacency, spread over the ranks of a grid.

    Both products are differentiable and collective, forward and backward; every rank must call the same products in
    the same order.

    Attributes:
        grid: the ranks, and the place of the results of both products.
        weight_axes: axes along which to sum the gradients of a parameter that all ranks hold.
    """

    grid: ProcessGrid
    weight_axes: tuple[str, ...]

    def agree(self) -> None:
        """Check that the shards that the ranks have read belong together, before rows are exchanged. Collective.

        Raises:
            CollectiveError: the rows that a rank would send differ from the rows that another rank needs.
        """
        ...

    def layout(self, layer: int) -> Layout:
        """Layout of the input of a layer, which is the output of the previous layer."""
        ...

    def product_layouts(self, layer: int) -> tuple[Layout, Layout]:
        """Layouts of the input and of the output of :meth:`propagate` in a layer."""
        ...

    def align(self, features: Tensor, source: Layout, target: Layout, dim: int) -> Tensor:
        """A matrix of width ``dim`` in another layout, with the same entries; differentiable. Collective."""
        ...

    def release(self, layer: int) -> None:
        """Free memory that only :meth:`propagate` needs in a layer; it will not be called for this layer again."""
        ...

    def weight_piece(self, layer: int, shape: tuple[int, int]) -> ParameterPiece | None:
        """The piece of a layer's (input dim, output dim) weight that this rank holds; None for the whole."""
        ...

    def propagate(self, features: Tensor, layer: int, *, as_sums: bool = False) -> Tensor:
        """The normalized adjacency times the features. Collective.

        Args:
            features: (num_rows, columns held) this rank's piece, in the first of :meth:`product_layouts`.
            as_sums: leave the result in the dtype of sums, float32 for bfloat16, instead of rounding it.

        Returns:
            (num_rows, columns held) this rank's piece, in the second layout.
        """
        ...

    def transform(self, features: Tensor, weight: Tensor, layer: int, *, spends: bool = False) -> Tensor:
        """The features times the layer's weight. Collective.

        Args:
            features: (num_rows, columns held) this rank's piece of a (n, input dim) matrix.
            weight: this rank's piece of the (input dim, output dim) weight.
            spends: nothing else needs the features, so their gradient may take their memory.

        Returns:
            (num_rows, columns held) this rank's piece of the (n, output dim) product.
        """
        ...
