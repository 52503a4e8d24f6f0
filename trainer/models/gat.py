"""Graph attention network (Velickovic et al., ICLR 2018): heads side by side in hidden layers, averaged in the last.

Features are dropped between layers, the attention's weights are not.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.kernels.dispatch import Dropout
from gnnloom.trainer.models.model import Inputs, Model, ModelOptions, glorot
from gnnloom.trainer.operators.attention import Attending, Attention
from gnnloom.trainer.operators.halo import HaloFetch
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.operators.p2p import PointToPoint


class GAT(Model):
    """A weight matrix, a source and a target attention vector per head, and a bias per layer."""

    multiplies = False

    def __init__(
        self, operator: Operator, options: ModelOptions, dropout: Dropout, seed: int, dtype: torch.dtype
    ) -> None:
        """Initialize the weights (Glorot, uniform) from ``seed``: the same on every rank.

        Raises:
            InputError: the operator knows no neighbors, only products.
        """
        super().__init__(operator, options, dropout, dtype)
        if not isinstance(operator, PointToPoint):
            raise InputError("model gat runs on algorithm p2p")
        self._exchange = operator.exchange
        self._attention = Attention(
            operator.matrix, options.negative_slope, operator.threads, operator.grid.comm.traffic
        )
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
        values = self.operator.transform(inputs.features, self.weights[layer], layer)
        fetch = HaloFetch(self._exchange)
        # The narrower of H and H W is sent, and arrives while the own columns are summed.
        sends_inputs = self.options.propagates_first(layer, values.shape[1])
        begun = None if inputs.propagated else fetch.begin(inputs.value if sends_inputs else values)
        own, step = self._by_head(values), Attending(self._attention)
        source, target = self.source_attention[layer], self.target_attention[layer]
        target_score = _score(own, target)
        attended = step.begin(own, _score(own, source), target_score)
        fetched = inputs.value if begun is None else fetch.finish(begun)
        if begun is None or sends_inputs:
            fetched = self.operator.transform(fetched, self.weights[layer], layer)
        halo = self._by_head(fetched)
        output = step.finish(attended, halo, _score(halo, source), target_score)
        output = output.mean(1) if layer == self.num_layers - 1 else output.flatten(1)
        return self._with_bias(output, self.biases, layer)

    def _by_head(self, values: Tensor) -> Tensor:
        """(num_rows, heads, dim), of which a rank may have no rows."""
        return values.view(len(values), self.options.heads, values.shape[1] // self.options.heads)


def _score(values: Tensor, attention: Tensor) -> Tensor:
    """(num_rows, heads) of (num_rows, heads, dim) values."""
    return (values * attention).sum(2)
