"""The decoder ``mlp``: a perceptron of the element-wise product of both rows."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from gnnloom.trainer.kernels.dispatch import score_block
from gnnloom.trainer.links.decoder import Decoder
from gnnloom.trainer.links.decoders.mlp import DECODER


class Perceptron(Decoder):
    """Linear layers with a ReLU between them, of the element-wise product of both rows.

    As in the examples of the Open Graph Benchmark, the product and not the concatenation is the input, so a pair and
    its reverse have the same score. There is no dropout.
    """

    is_symmetric = True
    own_options = DECODER.options

    def create_parameters(self) -> None:
        hidden = self.options.get("decoder_hidden") or (self.dim,)
        widths = itertools.pairwise((self.dim, *hidden, self.num_outputs))
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in widths)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        rows = source * target
        for number, layer in enumerate(self.layers):
            rows = layer(rows if number == 0 else rows.relu())
        return rows.squeeze(1) if self.num_outputs == 1 else rows

    def scores_of_pairs(self, source: Tensor, target: Tensor) -> Tensor:
        with torch.no_grad():
            rows = source * target
            for number, layer in enumerate(self.layers):
                # Not with a library's matrix product, whose bits depend on the number of rows.
                weight, bias = layer.get_parameter("weight"), layer.get_parameter("bias")
                rows = score_block(rows if number == 0 else rows.relu_(), weight, self.place).add_(bias)
        return rows.squeeze(1)
