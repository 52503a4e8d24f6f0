"""Options of a model. Imports no torch: planning needs it too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gnnloom.storage.option import Option
from gnnloom.trainer.operators.operator import LayerPlan

if TYPE_CHECKING:
    from gnnloom.trainer.data.typed_vertices import TypedSchema

#: Options of a model with attention.
HEAD_OPTIONS: Final[Mapping[str, Option]] = {
    "heads": Option(default=4, help="Number of attention heads, which share the hidden width", least=1),
    "negative_slope": Option(default=0.2, help="Slope of the attention's LeakyReLU for negative values", below=1.0),
    "attention": Option(
        default="v1",
        help="Attention of GAT (v1), or of GATv2 (v2), where each vertex ranks its neighbors in its own order",
        choices=("v1", "v2"),
    ),
}


@dataclass(frozen=True)
class ModelOptions:
    """Everything that determines a model except its weights.

    Attributes:
        dims: widths from the input features to the classes.
        input_dropout: apply dropout to the input features too, as Kipf and PyG do on citation graphs.
        product_order: ``propagate-first`` for (A H) W, ``transform-first`` for A (H W), or ``auto`` for the cheaper one
            in each layer.
        input_needs_gradient: form the gradient of the input features.
        input_is_kept: the first layer's product with the adjacency is formed once.
        norm: ``none``, ``layer`` or ``batch``: normalization of every hidden layer's output before its activation.
        residual: add a hidden layer's input to its output if their widths are equal.
        unit_embedding: scale the rows of the last layer's input to length 1 (as Zeng et al., ICLR 2020, do).
        recompute: recompute outputs of hidden layers in the backward pass, if the model can.
        num_inputs: number of matrices of equal width, side by side in the input: features and propagated values.
        own: the model's own options by name, checked; see :class:`~gnnloom.trainer.models.kind.ModelKind`.
        module: the torch module that the model consists of, as ``package.module:Class``, if it takes edges.
        schema: the types and relations of its graph; None for a graph without types.
    """

    dims: tuple[int, ...]
    bias: bool = True
    input_dropout: bool = True
    product_order: str = "auto"
    input_needs_gradient: bool = False
    input_is_kept: bool = False
    norm: str = "none"
    residual: bool = False
    unit_embedding: bool = False
    recompute: bool = False
    num_inputs: int = 1
    own: Mapping[str, Any] = field(default_factory=dict)
    module: str = ""
    schema: TypedSchema | None = None

    def propagates_first(self, layer: int, width: int | None = None) -> bool:
        """Whether a layer is (A H) W rather than A (H W).

        The cost and the traffic of a product with A are proportional to its width. (A H) W of a first layer without a
        gradient of the inputs needs no backward product, and if A H is kept it needs no forward product either.

        Args:
            width: width of H W; by default the width of the layer's output.
        """
        if layer == 0 and self.input_is_kept:
            return True
        if self.product_order != "auto":
            return self.product_order == "propagate-first"
        # (A H) W needs a product of width `before`, and a second one backward if H has a gradient. A (H W) always needs
        # two of width `after`: the gradient of W passes through the backward one.
        before, after = self.dims[layer], width or self.dims[layer + 1]
        backward = layer > 0 or self.input_needs_gradient
        return before * (1 + backward) <= after * 2

    def layer_plan(self) -> LayerPlan:
        """The products that the model will ask its operator for."""
        orders = tuple(self.propagates_first(layer) for layer in range(len(self.pairs)))
        return LayerPlan(self.dims, orders, self.input_needs_gradient)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Input and output width of every layer."""
        return list(zip(self.dims[:-1], self.dims[1:], strict=True))
