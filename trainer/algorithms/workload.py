"""Sizes that determine an epoch's steps with any algorithm: the graph, the model, and a rank's part of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Product(NamedTuple):
    """A product with the adjacency, or (``backward``) with its transpose."""

    layer: int
    backward: bool
    width: int


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Rows that the ranks of a partition exchange for one product; a partition stores these figures.

    Attributes:
        rows: rows sent by all ranks.
        messages: messages sent by all ranks, one for every pair of ranks that share a row.
        busiest_rows: rows sent or received by the rank that sends or receives most.
        busiest_messages: messages of the rank that has most.
    """

    rows: float
    messages: float
    busiest_rows: float
    busiest_messages: float


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A graph, a model and the sizes of messages.

    Attributes:
        nnz: nonzeros of the adjacency, self loops included.
        num_training: labeled vertices of the training split.
        dims: widths from the input features to the classes.
        inner: width of H W in each layer; the layer's output width except for models that widen it.
        propagates_first: for every layer, whether it is (A H) W instead of A (H W).
        input_is_kept: A X of the first layer is formed once, before the first epoch.
        input_needs_gradient: gradients go back to the input features.
        weights: weight matrices by which every layer multiplies.
        adds_own: the layer adds a product of the vertex's own features to the product of its neighbors' features.
        attends: neighbors are weighted by attention, whose gradients return along the forward exchange.
        vectors: number of parameters that all ranks hold with any algorithm: biases, and scales of a normalization.
        matrices: number of parameters of the weight matrices.
        norm: ``none``, ``layer`` or ``batch``.
        residual: hidden layers of equal width add their input.
        unit_embedding: the last layer's input has rows of length 1.
        clips: the norm of the gradient is limited.
        splits_classes: the loss needs all scores of a vertex, so ranks that hold some columns sum over the others.
        double_order: layers alternate between two orders of the vertices.
        feature_size, parameter_size, score_size: bytes of a number in features, in sums (such as gradients of
            parameters) and in rows of the loss, as they are sent.
        index_size, row_size, value_size: bytes of a column id, of a row's id or number of entries, and of a weight of
            the adjacency as they are sent; 0 for no weights.
        scaled_sides: whether the normalization scales features before a forward product, and gradients before a
            backward one.
        heaviest: nonzeros of the busiest rank over the average.
        exchange, exchange_back: exchange for the product and for the product with the transpose, for algorithms over a
            partition.
    """

    num_vertices: int
    nnz: int
    num_training: int
    dims: tuple[int, ...]
    inner: tuple[int, ...]
    propagates_first: tuple[bool, ...]
    input_is_kept: bool
    input_needs_gradient: bool = False
    weights: int = 1
    adds_own: bool = False
    attends: bool = False
    vectors: int = 0
    matrices: int = 0
    norm: str = "none"
    residual: bool = False
    unit_embedding: bool = False
    clips: bool = False
    splits_classes: bool = True
    double_order: bool = True
    feature_size: int = 4
    parameter_size: int = 4
    score_size: int = 4
    index_size: int = 4
    row_size: int = 4
    value_size: int = 0
    scaled_sides: tuple[bool, bool] = (True, True)
    heaviest: float = 1.0
    exchange: Exchange | None = None
    exchange_back: Exchange | None = None

    @property
    def num_layers(self) -> int:
        return len(self.propagates_first)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Input width and width of H W of every layer."""
        return list(zip(self.dims[:-1], self.inner, strict=True))

    @property
    def products(self) -> list[Product]:
        """The products with the adjacency in an epoch, without the product of a kept input."""
        found = []
        for layer, (first, (before, after)) in enumerate(zip(self.propagates_first, self.pairs, strict=True)):
            width = before if first else after
            if layer > 0 or not self.input_is_kept:
                found.append(Product(layer, backward=False, width=width))
            # The gradient of W in A (H W) passes through the transpose; in (A H) W only the gradient of H does.
            if self.has_input_gradient(layer) or not first:
                found.append(Product(layer, backward=True, width=width))
        return found

    def has_input_gradient(self, layer: int) -> bool:
        """Whether a layer's input has a gradient."""
        return layer > 0 or self.input_needs_gradient

    def aligns_own(self, layer: int) -> bool:
        """Whether a layer's own features move to the layout of its product in every epoch."""
        return self.adds_own and not (layer == 0 and self.input_is_kept)

    def own_has_gradient(self, layer: int) -> bool:
        """Whether a gradient goes back through that move."""
        return self.has_input_gradient(layer) or not self.propagates_first[layer]

    def adds_input(self, layer: int) -> bool:
        """Whether a layer adds its input to its output: only between hidden layers of equal width."""
        is_hidden = 0 < layer < self.num_layers - 1
        return self.residual and is_hidden and self.dims[layer] == self.dims[layer + 1]


def share(size: float, parts: int) -> float:
    """The longest of ``parts`` even ranges of ``size`` items."""
    return float(-(-int(size) // parts))


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """One rank's shares in one layer, as fractions of n rows of the layer's width, or of the nonzeros.

    Attributes:
        rows: rows of the layer's input, with any columns.
        held: entries of the layer's input.
        product: entries of its product with the adjacency, before it is summed over ranks.
        received: entries that arrive at a time for a product, in addition to ``held``.
        adjacency: nonzeros of the matrix by which the layer multiplies.
        arriving: nonzeros that arrive at a time for a product.
        pointers: row pointers of that matrix, as a multiple of n; every block of columns has its own.
        window: names of the axes that split the rows and columns of that matrix, if these change from layer to layer.
        received_bytes: that may arrive at a time where the share that arrives takes less.
    """

    rows: float
    held: float
    product: float
    received: float
    adjacency: float
    pointers: float
    arriving: float = 0.0
    window: tuple[str, ...] = ()
    received_bytes: int = 0

    def arriving_bytes(self, whole: float) -> float:
        """Maximum number of bytes that arrive at a time for a product with a dense matrix of ``whole`` bytes."""
        return max(self.received * whole, min(self.received_bytes, whole))


def unchanging(num_layers: int, footprint: Footprint) -> list[Footprint]:
    """The footprints of all layers, and of the output, if they are the same in each."""
    return [footprint] * (num_layers + 1)
