"""The configuration of a training run: one frozen dataclass, its JSON and its check."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnnloom.storage.catalog import check_name
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.choices import (
    FEATURE_NORMS,
    GRADIENT_PRODUCTS,
    MODEL_NORMALISATIONS,
    NORMS,
    PRODUCT_ORDERS,
    check_options,
    settled_normalization,
)
from gnnloom.trainer.data.adjacency_scaling import NORMALISATIONS
from gnnloom.trainer.operators.algorithms import AXES, settled_grid

CHOICES = {
    "algorithm": tuple(AXES),
    "model": tuple(MODEL_NORMALISATIONS),
    "normalization": ("auto", *NORMALISATIONS),
    "norm": NORMS,
    "feature_norm": FEATURE_NORMS,
    "optimizer": ("adam", "sgd"),
    "weight_decay_layers": ("all", "first"),
    "dtype": ("float32", "float64"),
    "product_order": PRODUCT_ORDERS,
    "gradient_product": GRADIENT_PRODUCTS,
}

#: What the libraries below take for a whole number.
_LARGEST = 2**63 - 1
#: Of a rank; far beyond the cores of any machine.
_MOST_THREADS = 4096

#: Fields that may change when a run is resumed: they decide how far and where it runs, not what it computes.
FREE_TO_CHANGE = frozenset(
    {
        "catalog",
        "ranks",
        "shards",
        "method",
        "algorithm",
        "grid",
        "permutation",
        "profile",
        "summa_width",
        "aggregation_blocks",
        "gradient_product",
        "epochs",
        "eval_every",
        "checkpoint_every",
        "run",
        "resume",
        "save_embeddings",
        "threads",
    }
)


def _option(default: Any, text: str, *, former: str = "") -> Any:
    """A field with its line of help, and the name that it had in earlier versions, which stays valid."""
    return dataclasses.field(default=default, metadata={"help": text, "former": former})


def former_names(kind: type[Any]) -> dict[str, str]:
    """Names that fields of a configuration had in earlier versions, and today's."""
    fields = dataclasses.fields(kind)
    return {field.metadata["former"]: field.name for field in fields if field.metadata.get("former")}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """All that decides a training run; checked where it is built (InputError)."""

    catalog: str = dataclasses.field(metadata={"help": "directory of the catalog"})
    dataset: str = dataclasses.field(metadata={"help": "name of the dataset"})
    ranks: int = _option(1, "number of MPI ranks, and of row shards")
    shards: str | None = _option(None, "key of the shards, to choose between several")
    method: str | None = _option(None, "partitioner whose shards to use, to choose between several")
    algorithm: str = _option("p2p", "distributed algorithm")
    grid: tuple[int, ...] | None = _option(None, "process grid, such as 2x1x2; the most even one by default")
    permutation: str | None = _option(None, "permutation of the grid shards to use, to choose between several")
    model: str = _option("gcn", "model")
    hidden: tuple[int, ...] = _option((128, 128), "widths of the hidden layers, such as 128,128")
    bias: bool = _option(True, "add a bias in every layer")
    norm: str = _option("none", "normalize the output of every hidden layer: none, by layer or by batch (all vertices)")
    residual: bool = _option(False, "add a hidden layer's input to its output where their widths are equal")
    unit_embedding: bool = _option(False, "scale each vertex's embedding to length 1 before the last layer")
    heads: int = _option(4, "attention heads, which share the hidden widths (gat)")
    negative_slope: float = _option(0.2, "slope of the attention's LeakyReLU below 0 (gat)")
    normalization: str = _option(
        "auto", "normalization of the adjacency; auto: the model's usual one", former="normalisation"
    )
    train_features: bool = _option(False, "train the input features as well")
    feature_norm: str = _option(
        "auto", "scale each vertex's features to sum 1; auto: where none is negative, as with word counts"
    )
    epochs: int = _option(100, "number of epochs")
    lr: float = _option(0.01, "learning rate")
    optimizer: str = _option("adam", "optimizer")
    weight_decay: float = _option(0.0, "weight of the squared parameters in the loss")
    weight_decay_layers: str = _option("all", "layers whose parameters decay; Kipf and Welling: the first only")
    dropout: float = _option(0.0, "probability of dropping a feature between layers")
    input_dropout: bool = _option(True, "apply the dropout to the input features as well")
    dtype: str = _option("float32", "type of features and parameters")
    seed: int = _option(0, "seed of the initial weights and of the dropout")
    eval_every: int = _option(10, "epochs between evaluations; 0: only at the end")
    checkpoint_every: int = _option(0, "epochs between checkpoints; 0: only at the end")
    run: str | None = _option(None, "name of the run; made from the parameters by default")
    resume: bool = _option(False, "go on from the run's last checkpoint, if there is one")
    save_embeddings: bool = _option(False, "predict after training, and keep the last hidden layer too")
    threads: int = _option(0, "threads per rank; 0: the machine's cores shared by its ranks")
    product_order: str = _option("auto", "multiply (A H) W, A (H W), or the cheaper one in each layer")
    aggregation_blocks: int = _option(1, "blocks of a product, each summed over ranks while the next forms (tensor3d)")
    gradient_product: str = _option(
        "straight", "gradient of a weight: as H^T dQ, turned, or what is measured to be faster (tensor3d)"
    )
    summa_width: int = _option(0, "most vertices in a stage; 0: as many as lie on one rank (summa, split3d)")
    cache_input_product: bool = _option(True, "form A X of fixed input features once and keep it")
    skip_input_gradient: bool = _option(True, "form no gradient of fixed input features")
    profile: bool = _option(False, "write to the metrics where every rank's time goes; costs a barrier per message")

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_type(field, getattr(self, field.name))
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise InputError(f"{name} {getattr(self, name)!r}: expected one of {', '.join(choices)}")
        check_name(self.dataset)
        if self.run is not None:
            check_name(self.run, "run")
        # Settled here, so that a run's configuration says what was computed.
        object.__setattr__(self, "normalization", settled_normalization(self.model, self.normalization))
        _check_range("ranks", self.ranks, 1)
        if self.grid is not None:
            settled_grid(self.algorithm, self.grid, self.ranks)
        _check_range("aggregation_blocks", self.aggregation_blocks, 1)
        _check_range("heads", self.heads, 1)
        _check_range("epochs", self.epochs, 1)
        for name in ("seed", "eval_every", "checkpoint_every", "summa_width"):
            _check_range(name, getattr(self, name), 0)
        _check_range("threads", self.threads, 0, _MOST_THREADS)
        for width in self.hidden:
            _check_range("hidden", width, 1)
        _check_number("lr", self.lr, math.inf)
        _check_number("weight_decay", self.weight_decay, math.inf)
        _check_number("dropout", self.dropout, 1.0)
        _check_number("negative_slope", self.negative_slope, 1.0)
        check_options(self)

    @property
    def run_name(self) -> str:
        """The run's name: as given, or model, algorithm, ranks and a hash of what decides the result."""
        if self.run is not None:
            return self.run
        # Runs keep the names that earlier versions gave them, so the names of fields are the former ones here.
        former = {today: before for before, today in former_names(type(self)).items()}
        identity = {former.get(name, name): value for name, value in self.identity().items()}
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]
        ranks = "x".join(map(str, self.grid or (self.ranks,)))
        return f"{self.model}-{self.algorithm}-{ranks}-{digest}"

    @property
    def input_has_gradient(self) -> bool:
        """A gradient of the input features is formed: they are trained, or it is wanted for comparison."""
        return self.train_features or not self.skip_input_gradient

    @property
    def input_is_cached(self) -> bool:
        """A X can be formed once: X never changes, nothing is dropped from it, and no gradient goes back to it."""
        changes = self.input_has_gradient or (self.dropout > 0 and self.input_dropout)
        return self.cache_input_product and self.product_order != "transform-first" and not changes

    def identity(self) -> dict[str, Any]:
        """The fields that a resumed run must share, as JSON."""
        return {name: value for name, value in self.to_json().items() if name not in FREE_TO_CHANGE}

    def changes_since(self, before: TrainConfig) -> list[str]:
        """Where a resumed run must not differ from ``before`` and does, such as ``lr 0.1 (now 0.2)``."""
        then, now = before.identity(), self.identity()
        return [f"{name} {then[name]!r} (now {now[name]!r})" for name in now if then[name] != now[name]]

    def to_json(self) -> dict[str, Any]:
        content = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in content.items()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TrainConfig:
        """Build from JSON; missing fields take their defaults.

        Raises:
            InputError: a field is unknown, missing, or not of its type.
        """
        former = former_names(cls)
        content = {former.get(name, name): value for name, value in content.items()}
        known = {field.name for field in dataclasses.fields(cls)}
        unknown, missing = sorted(content.keys() - known), sorted({"catalog", "dataset"} - content.keys())
        if unknown or missing:
            raise InputError(f"configuration: unknown fields {unknown}, missing fields {missing}")
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in content.items()}
        return cls(**values)

    @classmethod
    def of_run(cls, run: Run) -> TrainConfig:
        """That which a run was made with.

        Raises:
            InputError: it is not one that is known here; the file is named.
        """
        try:
            return cls.from_json(run.config())
        except InputError as error:
            raise InputError(f"{run.config_path}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class PredictConfig:
    """Which run predicts, and on how many ranks (any number for which there are shards)."""

    catalog: str
    dataset: str
    run: str
    ranks: int = 1
    shards: str | None = None
    method: str | None = None
    grid: tuple[int, ...] | None = None
    embeddings: bool = False
    epoch: int | None = None
    threads: int = 0

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> PredictConfig:
        """Build from JSON.

        Raises:
            InputError: a field is unknown or missing.
        """
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in content.items()}
        try:
            return cls(**values)
        except TypeError as error:
            raise InputError(f"configuration of a prediction: {error}") from error


_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "tuple[int, ...]": (tuple,),
    "tuple[int, ...] | None": (tuple, type(None)),
}


def _check_type(field: dataclasses.Field[Any], value: Any) -> None:
    expected = _TYPES[str(field.type)]
    is_number = int in expected and isinstance(value, bool)
    if not isinstance(value, expected) or is_number:
        raise InputError(f"{field.name} {value!r}: expected {field.type}")
    if isinstance(value, tuple) and any(type(item) is not int for item in value):
        raise InputError(f"{field.name} {value!r}: expected whole numbers")


def _check_range(name: str, value: int, lowest: int, highest: int = _LARGEST) -> None:
    if value < lowest:
        raise InputError(f"{name} {value}: expected at least {lowest}")
    if value > highest:
        raise InputError(f"{name} {value}: expected at most {'2^63 - 1' if highest == _LARGEST else highest}")


def _check_number(name: str, value: float, below: float) -> None:
    if not (math.isfinite(value) and 0 <= value < below):
        raise InputError(f"{name} {value}: expected a number from 0 to below {below}")
