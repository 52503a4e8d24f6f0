"""The model of a run: its layers, and the order of their products."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gnnloom.storage.descriptors import UnconfirmedName
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Group, option_fields, parse_named
from gnnloom.trainer.config.fields import Config, DescriptorOptions, option, own_values
from gnnloom.trainer.data.adjacency_scaling import NORMALIZATIONS
from gnnloom.trainer.models.kind import ModelKind, ModelWork
from gnnloom.trainer.models.registry import MODELS, model_kind

if TYPE_CHECKING:
    from gnnloom.trainer.data.open_shards import RunData

#: A row of a layer takes a few MiB.
_MOST_COLUMNS = 1 << 20


_option = partial(option, group=Group.MODEL)


_model_option = DescriptorOptions(MODELS, "model", Group.MODEL).field


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """A model; ``normalization`` holds the resolved value of ``auto``."""

    name: str = _option(
        "gcn",
        "Model, or a class of your own as package.module:Class",
        name="model",
        is_common=True,
        choices=tuple(MODELS),
        importable=True,
    )
    hidden: tuple[int, ...] = _option(
        (128, 128),
        "Widths of the hidden layers, such as 128,128",
        is_common=True,
        least=1,
        most=_MOST_COLUMNS,
        example="128,128",
        metavar="WIDTHS",
    )
    bias: bool = _option(True, "Add a bias in every layer")
    norm: str = _option(
        "none",
        "Normalization of the output of every hidden layer: per vertex (layer) or over all vertices (batch)",
        choices=("none", "layer", "batch"),
    )
    residual: bool = _option(False, "Add a hidden layer's input to its output if their widths are equal")
    unit_embedding: bool = _option(False, "Scale each vertex's embedding to unit length before the last layer")
    heads: int = _model_option("heads")
    negative_slope: float = _model_option("negative_slope")
    attention: str = _model_option("attention", free=True)
    normalization: str = _option(
        "auto",
        "Normalization of the adjacency; auto: the model's default",
        choices=("auto", *NORMALIZATIONS),
    )
    train_features: bool = _option(False, "Also train the input features")
    embed: int = _option(
        0,
        "Width of learned input features, which start from random numbers and replace stored features; in a graph with"
        " types, only types without features learn them. 0: none",
        free=True,
        least=0,
        most=_MOST_COLUMNS,
    )
    dropout: float = _option(0.0, "Probability of dropping a feature between layers", is_common=True, below=1.0)
    input_dropout: bool = _option(True, "Also apply dropout to the input features")
    precision: str = _option(
        "float32",
        "Precision of all numbers; bf16: features, activations and their messages in bfloat16, parameters and sums in"
        " float32",
        choices=("float32", "float64", "bf16"),
    )
    product_order: str = _option(
        "auto",
        "Order of the products: (A H) W, A (H W), or the cheaper one in each layer",
        choices=("auto", "propagate-first", "transform-first"),
    )
    cache_input_product: bool = _option(True, "Compute A X of fixed input features once and keep it")
    skip_input_gradient: bool = _option(True, "Skip the gradient of fixed input features")
    recompute: bool = _option(
        False,
        "Recompute the output of a hidden layer in the backward pass instead of keeping it, where its product with A"
        " is kept and the next layer is A (H W): less memory for one more product with a weight (gcn)",
        free=True,
    )
    model_options: tuple[str, ...] = _option(
        (), "Options of a model of your own or of another package, each as name=value", kind=tuple[str, ...]
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # The abilities of a model are known only after its import, and were checked when the run was made.
        if isinstance(self.name, UnconfirmedName):
            return
        # The stored configuration of a run describes the computation, so `auto` is resolved here.
        self.settle("normalization", settled_normalization(self.name, self.normalization))
        # Only a check here: the field keeps the strings of the stored configuration.
        self.own_options()
        # Hidden layers concatenate their heads, which therefore need equal shares of the width.
        uneven = [width for width in self.hidden if width % self.heads]
        if uneven and "heads" in self.kind.options:
            raise InputError(f"heads {self.heads}: hidden width {uneven[0]} is not divisible by the number of heads")
        if self.residual and not any(before == after for before, after in pairwise(self.hidden)):
            raise InputError(f"residual: hidden {self.hidden} has no two consecutive layers of equal width")
        if self.unit_embedding and not self.hidden:
            raise InputError("unit_embedding: a model without hidden layers has no embedding")
        if self.kind.on_edges:
            self._check_module()
        if self.recompute:
            self._check_recomputed()
        if self.embed and self.train_features:
            raise InputError(
                f"train_features: reads stored features and trains them, but with embed {self.embed} none are read;"
                " remove one of the two"
            )

    def _check_recomputed(self) -> None:
        """Refuse models whose hidden layers cannot be recomputed.

        Raises:
            InputError: see above.
        """
        if not self.kind.recomputes:
            able = ", ".join(name for name, kind in MODELS.items() if kind.recomputes)
            raise InputError(f"recompute: model {self.name} keeps the outputs of its layers; choose {able}")
        for name in self.changed():
            if name in {"norm", "residual", "unit_embedding"}:
                raise InputError(f"recompute: with {name} {self.value(name)!r}, the outputs of hidden layers are kept")

    def _check_module(self) -> None:
        """Refuse options that a torch module, which computes all layers itself, would ignore.

        Raises:
            InputError: see above.
        """
        if len(set(self.hidden)) > 1:
            raise InputError(
                f"hidden {self.hidden}: model {self.name} has one width for all hidden layers; give equal ones, such"
                f" as {','.join([str(self.hidden[0])] * len(self.hidden))}"
            )
        for name in self.changed():
            if name in _BETWEEN_LAYERS:
                raise InputError(
                    f"{name} {self.value(name)!r}: model {self.name} is a module of torch that computes its layers by"
                    " itself; set what its constructor takes with --model-options"
                )

    @property
    def dtype(self) -> str:
        """Name of the dtype of parameters, their gradients, and sums."""
        return "float32" if self.precision == "bf16" else self.precision

    @property
    def feature_dtype(self) -> str:
        """Name of the torch dtype of features and activations, of their gradients, and of messages with them."""
        return "bfloat16" if self.precision == "bf16" else self.precision

    @property
    def kind(self) -> ModelKind:
        """The descriptor of the model."""
        return model_kind(self.name)

    @property
    def feature_bytes(self) -> int:
        """Bytes of a number of the features, the activations and their gradients."""
        return {"bfloat16": 2, "float32": 4, "float64": 8}[self.feature_dtype]

    @property
    def work(self) -> ModelWork | None:
        """Work and memory of the model's layers; None if unknown."""
        kind = self.kind
        return None if kind.work is None else kind.work_with(kind.work, self.own_options())

    def own_options(self) -> dict[str, Any]:
        """The options of the model by name, with defaults filled in.

        Raises:
            InputError: an item of ``model_options`` is not an option of the model, or its value is not allowed.
        """
        if self.kind.read_options is not None:
            return self.kind.read_options(self.model_options)
        options = self.kind.options
        others = {name: option for name, option in options.items() if name not in option_fields(ModelConfig)}
        given = parse_named("model_options", self.model_options, others, f"none: model {self.name} has no such options")
        return own_values(self, options, given)

    @property
    def input_is_trained(self) -> bool:
        """The input features are parameters; every rank has the parameters of its vertices."""
        return self.train_features or self.embed > 0

    @property
    def input_has_gradient(self) -> bool:
        """A gradient of the input features is formed: they are trained, or it is requested for comparison."""
        return self.input_is_trained or not self.skip_input_gradient

    @property
    def caches_input(self) -> bool:
        """A X is formed once if A stays: X never changes, nothing is dropped from it, and it has no gradient."""
        changes = self.input_has_gradient or (self.dropout > 0 and self.input_dropout)
        return self.cache_input_product and self.product_order != "transform-first" and not changes

    def check_graph(self, shards: RunData) -> None:
        """Check that the model is defined for a graph.

        Raises:
            InputError: the graph has weights, which the model would ignore; or a type has no features, and features are
                not learned and the model does not take vertex numbers instead; or features are learned, but every type
                has features.
        """
        # Only ranks that map a graph with types load it.
        from gnnloom.trainer.data.typed_vertices import TypedVertices  # noqa: PLC0415

        if isinstance(shards, TypedVertices):
            if self.embed and not shards.schema.without_features:
                raise InputError(f"embed {self.embed}: every type that the predictions depend on has features")
            if not (self.kind.takes_ids or self.embed):
                shards.check_features()
        if shards.weighted and not self.kind.takes_weights:
            able = ", ".join(name for name, kind in MODELS.items() if kind.takes_weights)
            raise InputError(
                f"{shards.artifact.path}: the edges have weights, which model {self.name} does not use; choose {able},"
                " or ingest the graph without them"
            )


#: Options of gnnloom's models in and between layers.
_BETWEEN_LAYERS = (
    "bias",
    "norm",
    "residual",
    "unit_embedding",
    "product_order",
    "heads",
    "negative_slope",
    "attention",
)


def settled_normalization(model: str, normalization: str) -> str:
    """The normalization of the adjacency for a model; ``auto`` is the model's usual one.

    Raises:
        InputError: the model is not defined for it.
    """
    allowed = model_kind(model).normalizations
    if normalization not in ("auto", *allowed):
        raise InputError(f"normalization {normalization!r}: model {model} supports only {', '.join(allowed)}")
    return allowed[0] if normalization == "auto" else normalization
