"""Graph attention network (Velickovic et al., ICLR 2018): heads side by side in hidden layers, averaged in the last.

Features are dropped between layers, the attention's weights are not.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm import Kind
from gnnloom.trainer.kernels.dropout import Dropout
from gnnloom.trainer.models.base import Inputs, Model, ModelOptions, glorot
from gnnloom.trainer.operators.attention import Attention
from gnnloom.trainer.operators.base import Operator
from gnnloom.trainer.operators.halo import gather_halo
from gnnloom.trainer.operators.p2p import PointToPoint


class GAT(Model):
    """A weight matrix, a source and a target attention vector per head, and a bias per layer."""

    normalisations = ("none",)
    multiplies = False

    def __init__(
        self, operator: Operator, options: ModelOptions, dropout: Dropout, seed: int, dtype: torch.dtype
    ) -> None:
        """Initialise the weights (Glorot, uniform) from ``seed``: the same on every rank.

        Raises:
            InputError: the operator knows no neighbours, only products.
        """
        super().__init__(operator, options, dropout, dtype)
        if not isinstance(operator, PointToPoint):
            raise InputError("model gat runs on algorithm p2p")
        self._exchange = operator.exchange
        self._attention = Attention(operator.matrix, options.negative_slope, operator.threads)
        generator = torch.Generator().manual_seed(seed)
        heads, widths = options.heads, [self._head_width(layer) for layer in range(self.num_layers)]
        shapes = [(before, heads * width) for before, width in zip(options.dims[:-1], widths, strict=True)]
        self.weights = nn.ParameterList([glorot(shape, generator, dtype) for shape in shapes])
        self.source_attention, self.target_attention = (
            nn.ParameterList([glorot((heads, width), generator, dtype) for width in widths]) for _ in range(2)
        )
        self.biases = nn.ParameterList([torch.zeros(width, dtype=dtype) for _, width in options.pairs if options.bias])

    def _head_width(self, layer: int) -> int:
        width = self.options.dims[layer + 1]
        return width if layer == self.num_layers - 1 else width // self.options.heads

    def keep(self, features: Tensor) -> Inputs:
        """The features with those of the halo. Collective."""
        return Inputs(self._exchange.gather(features, Kind.HALO_FORWARD), propagated=True, own=features)

    def _activate(self, output: Tensor) -> Tensor:
        return torch.nn.functional.elu(output)

    def _layer(self, inputs: Inputs, layer: int) -> Tensor:
        own, halo = (self._by_head(values) for values in self._values(inputs, layer))
        source, target = self.source_attention[layer], self.target_attention[layer]
        scores = [(values * vector).sum(2) for values, vector in ((own, source), (halo, source), (own, target))]
        output = self._attention.attend(own, halo, *scores)
        output = output.mean(1) if layer == self.num_layers - 1 else output.flatten(1)
        return self._with_bias(output, self.biases, layer)

    def _by_head(self, values: Tensor) -> Tensor:
        """(num_rows, heads, dim), of which a rank may have no rows."""
        return values.view(len(values), self.options.heads, values.shape[1] // self.options.heads)

    def _values(self, inputs: Inputs, layer: int) -> tuple[Tensor, Tensor]:
        """H W of this rank's rows and of the halo's, from whichever is the narrower to send. Collective."""
        weight = self.weights[layer]
        own = inputs.features @ weight
        if inputs.propagated:
            return own, inputs.value @ weight
        if self.options.propagates_first(layer, own.shape[1]):
            return own, gather_halo(inputs.value, self._exchange) @ weight
        return own, gather_halo(own, self._exchange)
