"""Common base of models: layers over a distributed adjacency, and everything between the layers.

A model of your own is a subclass of :class:`Model`, named as ``--model mypackage.mymodel:MyModel`` or by the
descriptor of another package. It defines

* ``create_parameters``: parameter lists with one entry per layer. A matrix that is given to ``operator.transform``
  comes from ``held_weights`` or ``held_weight``.
* ``layer``: the output of one layer from its input; a rank holds only its own rows of both.

The base class does everything between the layers: dropout, normalization, activation and residuals. ``embed``,
``classify``, ``activate`` and ``keep`` can be overridden.

*Collective*: every rank must make the same calls in the same order, even without rows: ``operator.propagate`` (the
normalized adjacency times a matrix), ``operator.transform`` (a matrix times a weight), ``operator.align``, and
``product``, ``own_product`` and ``keep``, which use them. All are differentiable. A model must therefore not branch on
values that differ between ranks.

*Local*: everything else. A rank has some rows, possibly none, and an operation on single rows (``relu``, a sum of two
    matrices) needs no communication. A sum, mean or maximum over rows is not local; over columns, it is local only if
    the algorithm keeps rows whole.

*Random*: ``create_parameters`` draws from the given generator, which is torch's global one, so that ``nn.Linear`` and
``nn.init`` give the same parameters on every rank; the trainer compares them. Draws of a layer from torch's global
generator, as in ``nn.Dropout``, are keyed by the seed, epoch and rank. They are repeated after an interruption on the
same number of ranks, and differ on another number of ranks; ``self.dropout`` does not depend on it.

A plain parameter is the same on every rank; the trainer sums its gradients over the ranks. Parameters with
``requires_grad=False`` do not change. A torch module with parameters needs whole rows, each on one rank.
A subclass may keep the tensors that a layer returns: only gnnloom's own classes overwrite them. Apply a vector through
``with_bias`` or ``columns_of``: with an algorithm that splits columns, they keep copies from being counted twice. A
model that multiplies by several weights in one layer, or skips the adjacency in some layers, needs the capability
``ONE_LAYOUT``: whole rows in one layout throughout, as with ``p2p``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option
from gnnloom.trainer.data.adjacency_scaling import NORMALIZATIONS
from gnnloom.trainer.kernels.dispatch import Dropout, add_bias, converted, fork, give_up, matrix_sum, rectify
from gnnloom.trainer.layout.partial_parameters import PartialParameter, columns_of, held, vertex_piece
from gnnloom.trainer.models.kind import ModelKind
from gnnloom.trainer.models.networks.norm import build_norms, share_batch_norms, unit_rows
from gnnloom.trainer.models.options import ModelOptions
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.operators.whole_rows import RecomputedOutput, recomputed_product
from gnnloom.trainer.place.global_generator import Draws, derived_seed, seeded
from gnnloom.trainer.place.place import Place


@dataclass(frozen=True)
class Inputs:
    """The input of a layer.

    Attributes:
        value: (num_rows, dim) features in the layer's layout or, if ``propagated``, the result of the layer's
            communication, such as the adjacency times the features. It is formed once if the features never change.
        propagated: see ``value``.
        own: (num_rows, dim) the features themselves in the layout of a propagated ``value``, if the model needs both.
        dropped: ``value`` has gone through the layer's dropout already.
        unformed: the source from which the features are formed each time they are needed, instead of ``value``.
    """

    value: Tensor
    propagated: bool = False
    own: Tensor | None = None
    dropped: bool = False
    unformed: RecomputedOutput | None = None

    @property
    def features(self) -> Tensor:
        """The features themselves, whether or not ``value`` is propagated."""
        return self.value if self.own is None else self.own


class Model(nn.Module, ABC):
    """A model on one rank; ``forward`` is collective.

    A subclass holds its parameters in parameter lists with one entry per layer, and computes one layer from its input;
    this class does everything between the layers.
    """

    #: Contents of a model's descriptor, for a class that a user names; see
    #: :class:`~gnnloom.trainer.models.kind.ModelKind`.
    normalizations: ClassVar[tuple[str, ...]] = NORMALIZATIONS
    needs: ClassVar[frozenset[str]] = frozenset()
    takes_weights: ClassVar[bool] = False
    own_options: ClassVar[Mapping[str, Option]] = {}
    #: The first layer accepts ``Inputs`` that are ``propagated`` already, as ``product`` does. Otherwise the product
    #: with fixed features is formed in every epoch.
    keeps_product: ClassVar[bool] = False
    #: The layers multiply by the adjacency, so their adjoints multiply by its transpose.
    multiplies: ClassVar[bool] = True
    #: The layers treat rows one by one: the model needs no adjacency, and can train in mode ``rows``.
    is_rowwise: ClassVar[bool] = False
    #: The layers use the features themselves as well as their product with the adjacency.
    needs_features: ClassVar[bool] = False
    #: A layer's output may have fewer rows than its input, the leading ones, as with sampled neighbors. A summand of a
    #: product then goes through ``own_product`` or ``operator.align`` first. Between two products, every row is
    #: computed by itself, and a layer keeps nothing for later ones: an evaluation from disk runs it several times, on
    #: some rows each.
    takes_blocks: ClassVar[bool] = False
    #: The model is called with the edges of batches, has no layers of its own, and is evaluated by its ``inference``.
    takes_edges: ClassVar[bool] = False
    #: The layers overwrite features and gradients that this class no longer needs. Not inherited: a subclass may keep a
    #: layer's result.
    reuses_memory: ClassVar[bool] = False
    #: A hidden layer's output can be recomputed in the backward pass. Also not inherited.
    recomputes: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.reuses_memory = bool(vars(cls).get("reuses_memory", False))
        cls.recomputes = bool(vars(cls).get("recomputes", False))

    def __init__(self, operator: Operator, options: ModelOptions, dropout: Dropout, seed: int) -> None:
        """Initialize the parameters. Communicates nothing.

        Args:
            seed: seed of the draws of ``create_parameters``, the same on every rank.
        """
        super().__init__()
        self.operator = operator
        self.options = options
        self.dropout = dropout
        self.place = operator.grid.place
        #: dtype of the parameters: float32 or float64.
        self.dtype = self.place.sum_dtype
        self.epoch = 0
        self.norms = nn.ModuleList(build_norms(options.norm, options.dims[1:-1], self.place))
        # Other random draws of the process do not change the initial weights, or the other way round. They come
        # from one stream, so the numbers of `glorot` and of `nn.Linear` are independent.
        with seeded(seed) as generator:
            self.create_parameters(generator)

    @abstractmethod
    def create_parameters(self, generator: torch.Generator) -> None:
        """Create the parameters; the order of the draws decides the initial weights.

        Args:
            generator: torch's global generator as after ``torch.manual_seed(seed)``, so torch modules draw from it.
        """

    def whole_weights(self, shapes: Iterable[tuple[int, int]], generator: torch.Generator) -> nn.ParameterList:
        """Initial weights of the given shapes, whole on every rank."""
        return nn.ParameterList([glorot(shape, generator, self.place) for shape in shapes])

    def held_weights(self, generator: torch.Generator) -> nn.ParameterList:
        """Initial (input width, output width) weights of all layers; this rank keeps its part."""
        # Every rank draws the whole weights, which are small, so the model starts the same on every process grid.
        wholes = [glorot(pair, generator, self.place) for pair in self.options.pairs]
        return nn.ParameterList([self.held_weight(whole, layer) for layer, whole in enumerate(wholes)])

    def zero_biases(self, widths: Iterable[int]) -> nn.ParameterList:
        """Zeros of the given widths; an empty list for a model without biases."""
        return nn.ParameterList([self.place.lasting((width,), self.dtype) for width in widths if self.options.bias])

    @property
    def num_layers(self) -> int:
        return len(self.options.dims) - 1

    @contextmanager
    def multiplying_by(self, operator: Operator, **options: Any) -> Iterator[None]:
        """Multiply by another matrix inside the block, such as the matrix of a batch.

        Args:
            options: options of the model that differ inside the block.
        """
        before = self.operator, self.options
        self.operator, self.options = operator, replace(self.options, **options)
        try:
            yield
        finally:
            self.operator, self.options = before

    def parameters_by_layer(self) -> list[list[nn.Parameter]]:
        """The parameters of every layer, including the parameters of the normalization that follows it."""
        return entries_by_layer(self, self.num_layers)

    def keep(self, features: Tensor) -> Inputs:
        """The inputs, with the part of the first layer that is constant while ``features`` are. Collective.

        Args:
            features: (num_rows, columns held) in the first layer's layout.
        """
        if not self.keeps_product:
            return Inputs(features)
        product = self.operator.propagate(features, 0)
        # The product is kept from now on, so the first layer never multiplies by the adjacency again.
        self.operator.release(0)
        if not self.needs_features:
            return Inputs(product, propagated=True)
        own = self.operator.align(features, *self.operator.product_layouts(0), self.options.dims[0])
        return Inputs(product, propagated=True, own=own)

    def train_features(self, feature: Tensor, num_vertices: int) -> nn.Parameter:
        """Make the input features a parameter; every rank keeps and updates its share.

        Args:
            feature: (num_rows, columns held) this rank's share in the first layer's layout.
            num_vertices: number of rows of the whole matrix.

        Returns:
            The parameter, which shares the memory of ``feature``.
        """
        piece = vertex_piece(self.operator.layout(0), num_vertices, self.options.dims[0])
        parameter = PartialParameter.of(feature, piece)
        self.register_parameter("feature", parameter)
        return parameter

    def forward(self, inputs: Inputs) -> Tensor:
        """(num_rows, columns held) scores of the classes, in the layout of the last layer's output. Collective."""
        return self.classify(self.embed(inputs))

    def whole_scores(self, inputs: Inputs) -> Tensor:
        """The scores of this rank's rows on the whole graph; see :meth:`forward`. Collective."""
        scores: Tensor = self(inputs)
        return scores

    @property
    def inference_facts(self) -> Mapping[str, Any]:
        """Entries of a run's result about how :meth:`whole_scores` computed scores; empty if there is only one way."""
        return {}

    def embed(self, inputs: Inputs) -> Inputs:
        """The last layer's input: (num_rows, last hidden width), or the inputs of a one-layer model. Collective."""
        # Trained features are parameters, so they have another dtype.
        hidden = replace(inputs, value=self.as_features(inputs.value))
        for layer in range(self.num_layers - 1):
            hidden = self.hidden_layer(hidden, layer)
        return self.as_embedding(hidden)

    def as_embedding(self, hidden: Inputs) -> Inputs:
        """The last layer's input from the hidden layers' output: in rows of length 1 if configured so. Collective."""
        if not self.options.unit_embedding or self.num_layers == 1:
            return hidden
        layout = self.operator.layout(self.num_layers - 1)
        unit = unit_rows(self.as_sums(hidden.value), layout)
        return Inputs(self.as_features(unit))

    def classify(self, hidden: Inputs) -> Tensor:
        """Scores from the result of :meth:`embed`, of the parameters' dtype. Collective."""
        last = self.num_layers - 1
        scores = self.as_sums(self.checked(self.layer(self.after_dropout(hidden, last), last), last))
        self._announce_backward(scores, self.num_layers)
        return scores

    def as_features(self, matrix: Tensor) -> Tensor:
        """A matrix in the dtype of features and activations; differentiable. Communicates nothing."""
        return converted(matrix, self.place.feature_dtype, self.place)

    def as_sums(self, matrix: Tensor) -> Tensor:
        """A matrix in the dtype of sums and parameters; differentiable. Communicates nothing."""
        return converted(matrix, self.dtype, self.place)

    def hidden_layer(self, inputs: Inputs, layer: int) -> Inputs:
        """The next layer's input: a layer's output, normalized, activated, and with its input added. Collective."""
        inputs, given = self.divided(inputs, layer)
        output = self.checked(self.layer(given, layer), layer)
        output = self.as_features(self.activate(self.normalized(output, layer)))
        if self.adds_input(layer):
            output = matrix_sum(output, self.aligned_input(inputs, layer), self.place)
        return Inputs(output)

    def divided(self, inputs: Inputs, layer: int) -> tuple[Inputs, Inputs]:
        """A layer's input without dropout, for the residual sum, and with dropout, for the layer.

        The gradients of both are summed in the workspace.
        """
        if not self.adds_input(layer):
            return inputs, self.after_dropout(inputs, layer)
        value, added = fork(inputs.value, self.place)
        return replace(inputs, value=added), self.after_dropout(replace(inputs, value=value), layer)

    @abstractmethod
    def layer(self, inputs: Inputs, layer: int) -> Tensor:
        """(num_rows, columns held) output of a layer before normalization and activation. Collective."""

    def checked(self, output: Tensor, layer: int) -> Tensor:
        """A layer's output, with the shape of its layout. Communicates nothing.

        Raises:
            InputError: the layer returns another shape or no tensor.
        """
        layout = self.operator.layout(layer + 1)
        columns = layout.columns(self.options.dims[layer + 1])
        expected = (layout.num_rows, columns.stop - columns.start)
        if not isinstance(output, Tensor) or output.shape != expected:
            found = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else repr(type(output).__name__)
            raise InputError(f"model {type(self).__name__}: layer {layer} returns {found}, expected shape {expected}")
        return output

    def normalized(self, output: Tensor, layer: int) -> Tensor:
        """A hidden layer's output after its normalization, if there is one. Collective."""
        if not len(self.norms):
            return output
        given = self.as_sums(output)
        result: Tensor = self.norms[layer](given, self.operator.layout(layer + 1), self.operator.weight_axes)
        return converted(result, output.dtype, self.place)

    def activate(self, output: Tensor) -> Tensor:
        return rectify(output, None, None, self.place)

    def spends_input(self, layer: int) -> bool:
        """Whether a layer's input is a hidden layer's output that only the layer's product needs."""
        is_kept = self.options.unit_embedding and layer == self.num_layers - 1
        return self.reuses_memory and layer > 0 and not self.adds_input(layer) and not is_kept

    def aligned_input(self, inputs: Inputs, layer: int) -> Tensor:
        """A layer's input in the layout of its output. Collective."""
        source, target = self.operator.layout(layer), self.operator.layout(layer + 1)
        return self.operator.align(inputs.value, source, target, self.options.dims[layer])

    def adds_input(self, layer: int) -> bool:
        """Whether a layer adds its input to its output: only between hidden layers of equal width."""
        return self.options.residual and layer > 0 and self.options.dims[layer] == self.options.dims[layer + 1]

    def after_dropout(self, inputs: Inputs, layer: int) -> Inputs:
        """A layer's input after its dropout. Communicates nothing.

        Tells the watchdog which layer this rank is computing, forward and backward.
        """
        self.operator.grid.comm.traffic.watch.step = f"layer {layer + 1} forward"
        # The gradient of a layer's input exists when the layer's backward pass is done; the layer before follows.
        if layer:
            self._announce_backward(inputs.value, layer)
        if inputs.dropped or not self.drops(layer):
            return inputs
        value = self.dropout.apply(inputs.value, *self.dropout_place(layer), self.epoch, layer)
        return replace(inputs, value=value, dropped=True)

    def _announce_backward(self, output: Tensor, number: int) -> None:
        """Tell the watchdog when the backward pass of a layer begins: once the gradient of its output exists."""
        watch = self.operator.grid.comm.traffic.watch
        if output.requires_grad:
            output.register_hook(  # type: ignore[no-untyped-call]
                lambda _: setattr(watch, "step", f"layer {number} backward")
            )

    def drops(self, layer: int) -> bool:
        """Whether dropout applies to a layer's input now."""
        return self.training and (layer > 0 or self.options.input_dropout)

    def dropout_place(self, layer: int) -> tuple[NDArray[np.int64], int]:
        """Ids of this rank's rows of a layer's input, and its first column there.

        They determine the mask, so the mask is the same for every layout.
        """
        layout = self.operator.layout(layer)
        return layout.vertex, layout.columns(self.options.dims[layer]).start

    def product(self, inputs: Inputs, weight: Tensor, layer: int, *, spends: bool = False) -> Tensor:
        """The adjacency times the inputs times ``weight``, in the cheaper order. Collective.

        The result has the dtype of features; in the last layer, possibly the dtype of sums.

        Args:
            spends: the inputs are a hidden layer's output that nothing else reads; the call may free them, and the
                backward pass may reuse their memory.
        """
        if self.options.propagates_first(layer) or inputs.propagated:
            product = self.multiplied(inputs, layer, spends=spends)
            return self.operator.transform(product, weight, layer, spends=not inputs.propagated)
        if inputs.unformed is None:
            rows = self.operator.transform(inputs.value, weight, layer, spends=spends)
        else:
            rows = recomputed_product(inputs.unformed, weight, self.operator.grid)
        # The product does not round scores, whose differences decide the loss.
        return self.operator.propagate(rows, layer, as_sums=layer == self.num_layers - 1)

    def multiplied(self, inputs: Inputs, layer: int, *, spends: bool) -> Tensor:
        """The adjacency times the inputs; for ``spends`` see :meth:`product`. Collective."""
        if inputs.propagated:
            return inputs.value
        product = self.operator.propagate(inputs.value, layer)
        # The callers still refer to the inputs. Inputs of the last layer may be wanted as embeddings.
        if spends and layer < self.num_layers - 1:
            give_up(inputs.value)
        return product

    def own_product(self, inputs: Inputs, weight: Tensor, layer: int) -> Tensor:
        """The inputs times ``weight``, in the layout of :meth:`product` and in the same order of steps. Collective."""
        if inputs.propagated:
            return self.operator.transform(inputs.features, weight, layer)
        source, target = self.operator.product_layouts(layer)
        before, after = self.options.dims[layer : layer + 2]
        if self.options.propagates_first(layer):
            return self.operator.transform(self.operator.align(inputs.value, source, target, before), weight, layer)
        return self.operator.align(self.operator.transform(inputs.value, weight, layer), source, target, after)

    def held_weight(self, whole: Tensor, layer: int) -> nn.Parameter:
        """The piece of a layer's weight that the algorithm assigns to this rank."""
        return held(whole, self.operator.weight_piece(layer, (whole.shape[0], whole.shape[1])))

    def with_bias(self, output: Tensor, biases: nn.ParameterList, layer: int) -> Tensor:
        """The output plus the layer's bias, if there is one."""
        bias = self.bias_columns(biases, layer)
        return output if bias is None else add_bias(output, bias, self.place, in_place=False)

    def bias_columns(self, biases: nn.ParameterList, layer: int) -> Tensor | None:
        """(columns held,) the layer's bias in the layout of its output; None without biases. Differentiable."""
        if not self.options.bias:
            return None
        return columns_of(biases[layer], self.operator.layout(layer + 1), self.operator.weight_axes)


def build_model(kind: ModelKind, operator: Operator, options: ModelOptions, dropout: float, seed: int) -> Model:
    """A model with weights from a seed, the same on every rank. Communicates nothing.

    torch modules, such as ``nn.Linear``, are created in the dtype of the run.

    Args:
        dropout: probability of dropping a feature between layers.
    """
    place = operator.grid.place
    # For draws of a class outside `create_parameters`, in its own `__init__`.
    with place.creating_modules(), seeded(derived_seed(seed, Draws.CREATION)):
        model: Model = kind.load()(operator, options, Dropout(dropout, seed, place), seed)
    share_batch_norms(model, lambda: model.operator)
    return model


#: Modules that hold an entry for each layer.
_LISTS = nn.ParameterList, nn.ModuleList


def entries_by_layer(module: nn.Module, num_layers: int) -> list[list[nn.Parameter]]:
    """The parameters that a module holds in lists with one entry per layer, by layer."""
    layers: list[list[nn.Parameter]] = [[] for _ in range(num_layers)]
    for child in module.children():
        # Some lists are shorter: the list of biases is empty in a model without biases, and the last layer has no
        # normalization.
        for entry, found in zip(child if isinstance(child, _LISTS) else (), layers, strict=False):
            found.extend([entry] if isinstance(entry, nn.Parameter) else entry.parameters())
    return layers


def glorot(shape: Sequence[int], generator: torch.Generator, place: Place) -> Tensor:
    """(input width, output width) uniform weights (Glorot, Bengio, AISTATS 2010, equation 16).

    Drawn in float64, so that models of both dtypes start at the same point.
    """
    bound = math.sqrt(6 / (shape[0] + shape[1]))
    return ((2 * place.uniform(shape, generator) - 1) * bound).to(place.sum_dtype)
