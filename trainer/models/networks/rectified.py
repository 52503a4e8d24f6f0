"""Common base of models whose layers end in a bias and a ReLU: both and the next dropout are one pass in place."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor, nn

from gnnloom.trainer.kernels.dispatch import add_bias, add_to, matrix_sum, rectify
from gnnloom.trainer.models.networks.model import Inputs, Model
from gnnloom.trainer.place.contract import Mask


class RectifiedModel(Model):
    """A model that computes a layer's output without the bias, which this class adds.

    A subclass creates ``biases``, which may be empty.
    """

    biases: nn.ParameterList

    @property
    def last_biases(self) -> nn.ParameterList:
        """The biases that end the layers."""
        return self.biases

    @abstractmethod
    def unbiased(self, inputs: Inputs, layer: int) -> Tensor:
        """(num_rows, columns held) output of a layer without its bias. Collective.

        If the class ``reuses_memory``, the output is overwritten, and so may be the gradient of the input. An operation
        that passes one gradient on to several operands, such as a sum, must then not take the input itself: give it a
        result of ``fork``.
        """

    def layer(self, inputs: Inputs, layer: int) -> Tensor:
        output, bias = self.unbiased(inputs, layer), self.bias_columns(self.last_biases, layer)
        if bias is None:
            return output
        return add_bias(output, bias, self.place, in_place=self.reuses_memory)

    def hidden_layer(self, inputs: Inputs, layer: int) -> Inputs:
        if not self.reuses_memory:
            # A subclass may override `layer` or `activate`, and keep features before dropout.
            return super().hidden_layer(inputs, layer)
        inputs, given = self.divided(inputs, layer)
        if len(self.norms):
            output, bias = self.normalized(self.layer(given, layer), layer), None
        else:
            output, bias = self.unbiased(given, layer), self.bias_columns(self.last_biases, layer)
        # A residual sum needs the features without dropout.
        drops = self.drops(layer + 1) and not (self.options.residual or self.options.unit_embedding)
        mask = self.mask_before(layer + 1) if drops else None
        adds_input = self.adds_input(layer)
        # In the backward pass, a sum passes its gradient to both summands.
        output = rectify(output, bias, mask, self.place, in_place=True, spends_gradient=not adds_input)
        if adds_input:
            output = self.added(output, self.aligned_input(inputs, layer))
        return Inputs(output, dropped=drops)

    def mask_before(self, layer: int) -> Mask | None:
        """Mask of the features of a layer's input that are dropped."""
        return self.dropout.mask(*self.dropout_place(layer), self.epoch, layer) if self.drops(layer) else None

    def added(self, output: Tensor, other: Tensor) -> Tensor:
        """The sum of two matrices of one shape, in place of the first one if the class ``reuses_memory``."""
        return (add_to if self.reuses_memory else matrix_sum)(output, other, self.place)
