"""The descriptor of a model: its options, and for planning the computations and memory of its layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gnnloom.storage.descriptors import LazyClass
from gnnloom.storage.option import Option
from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, STREAMS


@dataclass(frozen=True)
class Widths:
    """Widths of all layers.

    Attributes:
        before: width of the input of every layer.
        inner: width of H W, the first product with a weight, of every layer.
        after: width of the output of every layer.
        bias: layers have biases.
        own: the model's own options.
    """

    before: Sequence[int]
    inner: Sequence[int]
    after: Sequence[int]
    bias: bool
    own: Mapping[str, Any] = field(default_factory=dict)


def _same_inner(after: Sequence[int], options: Mapping[str, Any]) -> Sequence[int]:  # noqa: ARG001
    return after


def _one_matrix(widths: Widths) -> tuple[int, int]:
    return product_of(widths.before, widths.inner), sum(widths.after) if widths.bias else 0


def product_of(rows: Sequence[int], columns: Sequence[int]) -> int:
    """Numbers in one weight matrix per layer."""
    return sum(row * column for row, column in zip(rows, columns, strict=True))


@dataclass(frozen=True, kw_only=True)
class ModelWork:
    """Work of the layers of a model, in addition to one product with the adjacency and the activation.

    Attributes:
        weights: weight matrices by which every layer multiplies.
        adds_own: the layer adds a product of the vertex's own features to the product of its neighbors' features.
        attends: neighbors are weighted by attention, whose gradients return along the forward exchange.
        inner: widths of H W in every layer, from the widths of the outputs and the model's own options.
        parameters: numbers in the weight matrices, and in the vectors that all ranks hold; without normalization.
        kept: results of the width of a layer's output that the backward pass needs.
        passing: results of that width that exist only briefly.
    """

    weights: int = 1
    adds_own: bool = False
    attends: bool = False
    inner: Callable[[Sequence[int], Mapping[str, Any]], Sequence[int]] = _same_inner
    parameters: Callable[[Widths], tuple[int, int]] = _one_matrix
    kept: int = 0
    passing: int = 2


#: Capabilities of models, in the words of messages about models that lack them.
ROWWISE: Final = "treat rows one by one, without the adjacency"
EDGE_WEIGHTS: Final = "take weights of edges"
#: The last hidden layer's output can be written. The hidden layers of a torch module are not accessible.
EMBEDDINGS: Final = "give embeddings"
#: Batches of a graph with types: a model takes them, and a mode makes them.
TYPES: Final = "train on graphs with types"

#: A model without a stated work counts as the model that needs most memory.
UNKNOWN = ModelWork(weights=2, kept=2, passing=3)


def _same_work(work: ModelWork, options: Mapping[str, Any]) -> ModelWork:  # noqa: ARG001
    return work


@dataclass(frozen=True, kw_only=True)
class ModelKind(LazyClass):
    """A model that can be chosen.

    The module that holds it must not import torch.

    Attributes:
        name: as given with ``--model``.
        order: position among the choices; models of equal order are sorted by name.
        help: one line of help text.
        source: the paper.
        normalizations: normalizations of the adjacency that the model is defined for; the usual one comes first.
        place: module and class, a :class:`gnnloom.trainer.models.networks.model.Model`.
        needs: capabilities that an algorithm must have to run the model, such as ``ONE_LAYOUT``.
        takes_weights: defined for weighted edges.
        recomputes: its hidden layers can be recomputed in the backward pass.
        is_rowwise: its layers treat rows one by one, without the adjacency. Such models train in modes that read all of
            the graph, or rows alone.
        takes_steps: its input consists of the features and their propagated values, which only modes of rows read.
        work: computations and memory of its layers, for planning. None if unknown: the planner then refuses the model,
            and its memory is projected as the largest of any gnnloom model.
        work_with: adapts ``work`` to the model's own options.
        options: the model's own options by name. Options of gnnloom's models are fields of ModelConfig; all others are
            given as ``--model-options name=value``.
        on_edges: the model is a torch module that takes the edges of a batch, and runs in modes that provide them.
        takes_types: it takes batches of a graph with types.
        takes_ids: it takes the numbers of the vertices, so that some types need no features.
        read_options: reads the items of ``--model-options``, each ``name=value``, of a model that does not declare its
            options; raises InputError.
    """

    name: str
    order: int
    help: str
    source: str
    normalizations: tuple[str, ...]
    needs: frozenset[str] = frozenset()
    takes_weights: bool = False
    recomputes: bool = False
    is_rowwise: bool = False
    takes_steps: bool = False
    work: ModelWork | None = None
    work_with: Callable[[ModelWork, Mapping[str, Any]], ModelWork] = _same_work
    options: Mapping[str, Option] = field(default_factory=dict)
    on_edges: bool = False
    takes_types: bool = False
    takes_ids: bool = False
    read_options: Callable[[Sequence[str]], dict[str, Any]] | None = None

    @property
    def capabilities(self) -> frozenset[str]:
        """Capabilities of the model that options and modes may need."""
        stated = {
            ROWWISE: self.is_rowwise,
            EDGE_WEIGHTS: self.takes_weights,
            EMBEDDINGS: not self.on_edges,
            TYPES: self.takes_types,
            # Attention visits the edges themselves, forward and backward, and not only their products. A module that
            # takes the edges of batches reads none from the shards.
            STREAMS: self.on_edges or NEIGHBORS not in self.needs,
        }
        return frozenset(each for each, is_offered in stated.items() if is_offered)
