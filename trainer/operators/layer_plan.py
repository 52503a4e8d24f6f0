"""What a model requires of its operator, before either exists. Imports no torch: planning needs it too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerPlan:
    """What a model requires of its operator.

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
