"""Graph attention network (Velickovic et al., ICLR 2018), or GATv2 (Brody, Alon, Yahav, ICLR 2022).

Heads are concatenated in hidden layers and averaged in the last one. Dropout applies to the features between layers,
not to the attention weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from gnnloom.storage.errors import InputError
from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, ONE_LAYOUT
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.kernels.dispatch import AttentionInputs, Dropout, add_bias, elu, fork, head_mean, head_scores
from gnnloom.trainer.models.networks.model import Inputs, Model, glorot
from gnnloom.trainer.models.options import HEAD_OPTIONS, ModelOptions
from gnnloom.trainer.operators.attention import Attending, NeighborRows
from gnnloom.trainer.operators.halo import HaloFetch
from gnnloom.trainer.operators.operator import Operator


@runtime_checkable
class NeighborOperator(Operator, Protocol):
    """An operator that also fetches the rows of in-neighbors (``capabilities`` has ``NEIGHBORS``)."""

    def neighbors(self, layer: int) -> NeighborRows:
        """The rows of in-neighbors in a layer."""
        ...


class GAT(Model):
    """A weight matrix, a source and a target attention vector per head, and a bias per layer.

    With dynamic attention, two weight matrices with biases, for sources and targets, an attention vector per head, and
    a bias per layer, as in PyG's GATv2Conv.
    """

    normalizations = ("none",)
    needs = frozenset({NEIGHBORS, ONE_LAYOUT})
    own_options = HEAD_OPTIONS
    multiplies = False
    takes_blocks = True
    reuses_memory = True

    def __init__(self, operator: Operator, options: ModelOptions, dropout: Dropout, seed: int) -> None:
        """Prepare attention and initialize the weights; see :class:`Model`.

        Raises:
            InputError: the operator forms only products and cannot fetch neighbors.
        """
        if not isinstance(operator, NeighborOperator):
            raise InputError("model gat: the algorithm does not fetch the rows of neighbors; use p2p")
        super().__init__(operator, options, dropout, seed)

    def _neighbors(self, layer: int) -> NeighborRows:
        # Sampled training replaces the model's operator for each batch.
        operator: NeighborOperator = self.operator  # type: ignore[assignment]
        return operator.neighbors(layer)

    def create_parameters(self, generator: torch.Generator) -> None:
        heads, widths = self._heads, [self._head_width(layer) for layer in range(self.num_layers)]
        shapes = [(before, heads * width) for before, width in zip(self.options.dims[:-1], widths, strict=True)]
        self.weights = self.whole_weights(shapes, generator)
        if self._is_dynamic:
            self.target_weights = self.whole_weights(shapes, generator)
            self.attention = self._vectors(widths, generator)
            self.source_biases, self.target_biases = (
                self.zero_biases(heads * width for width in widths) for _ in range(2)
            )
        else:
            self.source_attention, self.target_attention = (self._vectors(widths, generator) for _ in range(2))
        self.biases = self.zero_biases(self.options.dims[1:])

    def _vectors(self, widths: Sequence[int], generator: torch.Generator) -> nn.ParameterList:
        """A vector for every head of every layer."""
        return nn.ParameterList([glorot((self._heads, width), generator, self.place) for width in widths])

    @property
    def _is_dynamic(self) -> bool:
        return bool(self.options.own["attention"] == "v2")

    @property
    def _heads(self) -> int:
        return int(self.options.own["heads"])

    def _head_width(self, layer: int) -> int:
        # Hidden heads are concatenated and share the width; heads of the last layer are averaged, so each has the whole
        # width.
        width = self.options.dims[layer + 1]
        return width if layer == self.num_layers - 1 else width // self._heads

    def keep(self, features: Tensor) -> Inputs:
        """The features together with the halo's features. Collective.

        Args:
            features: (num_own, dim) this rank's rows.
        """
        exchange = self._neighbors(0).exchange
        halo = features[:0] if exchange is None else exchange.gather(features, Kind.HALO_FORWARD)
        return Inputs(halo, propagated=True, own=features)

    def activate(self, output: Tensor) -> Tensor:
        # Without bias and normalization, this is the output of attention, and attention's backward pass still needs it.
        is_fresh = self.options.bias or len(self.norms) > 0
        return elu(output, self.place, in_place=self.reuses_memory and is_fresh)

    def layer(self, inputs: Inputs, layer: int) -> Tensor:
        place, features, weight = self.place, inputs.features, self.weights[layer]
        rows = self._neighbors(layer)
        fetch = None if rows.exchange is None or inputs.propagated else HaloFetch(rows.exchange)
        # The narrower of H and H W is sent; it arrives while attention runs over the rank's own columns.
        sends_inputs = self.options.propagates_first(layer, weight.shape[1])
        features, of_targets = fork(features, place) if self._is_dynamic else (features, features)
        features, sent = fork(features, place) if fetch and sends_inputs else (features, features)
        values = self._values(features, layer)
        values, sent = fork(values, place) if fetch and not sends_inputs else (values, sent)
        begun = fetch.begin(sent) if fetch else inputs.value
        attention = rows.attention(self.options.own["negative_slope"], dynamic=self._is_dynamic)
        step = Attending(attention, fetch.progress if fetch else None)
        own = self._attended(values, of_targets, layer)
        target, halo_target = fork(own.target, place)
        attended = step.begin(own._replace(target=target))
        if rows.exchange is None:
            fetched = place.empty((0, values.shape[1]), values.dtype)
        else:
            fetched = fetch.finish(begun) if fetch else inputs.value
            # The rows that arrived are rows of H, so this rank multiplies them by the weight.
            if fetch is None or sends_inputs:
                fetched = self._values(fetched, layer)
        halo = self._attended(fetched, None, layer)
        return self._joined(step.finish(attended, halo._replace(target=halo_target)), layer)

    def _values(self, features: Tensor, layer: int) -> Tensor:
        """Values that attention sums: the features of columns times the weight, with dynamic attention plus a bias."""
        values = self.operator.transform(features, self.weights[layer], layer)
        return self._biased(values, self.source_biases, layer) if self._is_dynamic else values

    def _biased(self, values: Tensor, biases: nn.ParameterList, layer: int) -> Tensor:
        return add_bias(values, biases[layer], self.place) if self.options.bias else values

    def _attended(self, values: Tensor, of_targets: Tensor | None, layer: int) -> AttentionInputs:
        """The values and scores of columns, and of the rows if these are the rank's own.

        Args:
            of_targets: features of the vertices that the rows belong to, before the features of the other columns.
        """
        by_head, place = self._by_head(values), self.place
        # With sampled neighbors, the leading vertices only are the vertices of the next layer.
        num_targets = 0 if of_targets is None else self.operator.layout(layer + 1).num_rows
        if not self._is_dynamic:
            target = None if of_targets is None else self.target_attention[layer]
            return AttentionInputs(*head_scores(by_head, self.source_attention[layer], target, num_targets, place))
        if of_targets is None:
            return AttentionInputs(by_head, self.attention[layer], by_head[:0])
        rows = self.operator.align(of_targets, *self.operator.product_layouts(layer), of_targets.shape[1])
        targets = self.operator.transform(rows, self.target_weights[layer], layer)
        return AttentionInputs(
            by_head, self.attention[layer], self._by_head(self._biased(targets, self.target_biases, layer))
        )

    def _joined(self, output: Tensor, layer: int) -> Tensor:
        """The layer's output from the output of every head."""
        place, is_last = self.place, layer == self.num_layers - 1
        bias = self.bias_columns(self.biases, layer)
        joined = head_mean(output, place) if is_last else output.flatten(1)
        # The adjoint of attention needs its result.
        return joined if bias is None else add_bias(joined, bias, place, in_place=is_last)

    def _by_head(self, values: Tensor) -> Tensor:
        """(num_rows, heads, dim); the width is given explicitly, as a rank may have no rows to infer it from."""
        return values.view(len(values), self._heads, values.shape[1] // self._heads)
