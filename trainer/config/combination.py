"""The parts of the configuration of a training, and which of their values train together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gnnloom.storage.descriptors import UnconfirmedName
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import options_of, part
from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, ONE_LAYOUT, STREAMS
from gnnloom.trainer.algorithms.registry import algorithms_with
from gnnloom.trainer.config.algorithm_config import AlgorithmConfig
from gnnloom.trainer.config.fields import Config
from gnnloom.trainer.config.mode_config import ModeConfig
from gnnloom.trainer.config.model_config import ModelConfig
from gnnloom.trainer.config.optimization_config import OptimizationConfig, StoppingConfig
from gnnloom.trainer.config.run_config import DataConfig, RunConfig
from gnnloom.trainer.config.task_config import TaskConfig
from gnnloom.trainer.models.registry import MODELS
from gnnloom.trainer.modes.kind import EDGES, INPUT_GRADIENT, LEARNED, PAIRS, ROWS_ON_DISK, TYPES, Adjacency
from gnnloom.trainer.modes.options import ON_DISK
from gnnloom.trainer.modes.registry import MODES

#: Options that only graphs with types have.
_OF_TYPES = ("of_type", "relation", "relation_fanout", "reverse", "vertex_data")
#: Options that have no effect on a graph with types, where ranks map the graph and the features.
_OF_SHARDS = ("shards", "method", "permutation", "adjacency", "train_features", "cache_memory")
#: What else to do about a mode that lacks a capability.
_OTHER_WAYS = {
    EDGES: ", or write the model with gnnloom's products; see docs/how-to/pyg-models.md and docs/how-to/own-model.md"
}


@dataclass(frozen=True, kw_only=True)
class Combination(Config):
    """The parts of a training's configuration; InputError if they do not train together.

    A part checks its own options. What concerns several parts is decided here: capabilities that one part needs of
    another, in :meth:`_needs_of_mode` and :meth:`_needs_of_algorithm`, and everything else, in :meth:`_conflicts`.
    """

    algorithm: AlgorithmConfig = part(AlgorithmConfig)
    data: DataConfig = part(DataConfig)
    mode: ModeConfig = part(ModeConfig)
    model: ModelConfig = part(ModelConfig)
    optimization: OptimizationConfig = part(OptimizationConfig)
    task: TaskConfig = part(TaskConfig)
    stopping: StoppingConfig = part(StoppingConfig)
    run: RunConfig = part(RunConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        # What a model allows is known only after its import, and was checked when the run was made.
        if isinstance(self.model.name, UnconfirmedName):
            return
        self._check_needs()
        # The stored configuration states what runs: features of a graph with types stay on disk, and one graph serves
        # all layers of a model that takes edges.
        if self.model.kind.takes_types:
            self.settle("mode", self.mode.with_options(inputs=ON_DISK))
        if self.model.kind.on_edges and "draw_once" in self.mode.kind.options:
            self.settle("mode", self.mode.with_options(draw_once=True))
        for option, reason in self._conflicts():
            value = "" if self.value(option) is True else f" {self.value(option)!r}"
            raise InputError(f"{option}{value}: {reason}")
        if self.mode.kind.check:
            # The layers of the user's own model are known only where it is built.
            num_layers = len(self.model.hidden) + 1 if self.model.name in MODELS else None
            self.mode.kind.check(self.mode.own_options(), num_layers)

    def _needs_of_mode(self) -> Iterator[tuple[str, str]]:
        """What needs a capability of the mode, for messages, and the capability."""
        model, task = self.model, self.task
        if model.kind.takes_types:
            yield f"model {model.name}", TYPES
        if model.kind.on_edges:
            yield f"model {model.name}", EDGES
        if model.train_features:
            yield "train_features", INPUT_GRADIENT
        if not model.skip_input_gradient:
            yield "skip_input_gradient", INPUT_GRADIENT
        if model.embed:
            yield f"embed {model.embed}", LEARNED
        if task.on_pairs:
            yield f"task {task.name!r}", PAIRS

    def _needs_of_algorithm(self) -> Iterator[tuple[str, frozenset[str]]]:
        """What needs capabilities of the algorithm, for messages, and the capabilities."""
        yield f"model {self.model.name}", self.model.kind.needs
        yield f"mode {self.mode.name}", self.mode.kind.needs
        if self.model.recompute:
            yield "recompute", frozenset({ONE_LAYOUT})
        if self.data.adjacency == ON_DISK:
            yield f"adjacency {ON_DISK}", frozenset({STREAMS})
        if self.mode.maps_inputs and not self.mode.kind.is_sampled:
            yield f"inputs {ON_DISK}", frozenset({STREAMS})

    @property
    def needs(self) -> frozenset[str]:
        """Capabilities that the algorithm must have for the model, the mode and the place of the data."""
        return frozenset[str]().union(*(needs for _, needs in self._needs_of_algorithm()))

    def _check_needs(self) -> None:
        """Refuse a mode or an algorithm that lacks a capability.

        Raises:
            InputError: see above; names the modes, algorithms or values that have it.
        """
        algorithm, mode = self.algorithm, self.mode
        for what, capability in self._needs_of_mode():
            if capability not in mode.kind.offers:
                able = " or ".join(name for name, kind in MODES.items() if capability in kind.offers)
                other = _OTHER_WAYS.get(capability, "")
                raise InputError(f"{what}: mode {mode.name} does not {capability}; choose --mode {able}{other}")
        for what, needs in self._needs_of_algorithm():
            if not needs <= algorithm.kind.capabilities:
                able = ", ".join(algorithms_with(needs))
                raise InputError(f"algorithm {algorithm.name!r}: {what} runs on {able} only")
        # An operator may lack capabilities of its algorithm with some values of an option.
        for name, values in algorithm.kind.lacks.items():
            value = algorithm.own_options()[name]
            lost, usual = values.get(value, frozenset()), options_of(AlgorithmConfig)[name].default
            if self.model.kind.needs & lost:
                what = f"model {self.model.name}"
            elif lost and mode.kind.is_sampled:
                what = f"mode {mode.name}"
            elif STREAMS in lost and self.data.adjacency == ON_DISK:
                what = f"adjacency {ON_DISK}"
            else:
                continue
            raise InputError(f"{name} {value!r}: {what} runs with {name} {usual} only")

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        """Options that cannot have their values because of another part, each with the reason."""
        yield from self._conflicts_of_types() if self.model.kind.takes_types else self._conflicts_without_types()
        yield from self._conflicts_of_rows()
        yield from self._conflicts_of_features()
        mode, model, run = self.mode, self.model, self.run
        if model.kind.on_edges and run.save_embeddings:
            yield "save_embeddings", f"model {model.name} is a module of torch, whose hidden layers are its own"
        if model.kind.on_edges and mode.presamples and not model.kind.takes_weights:
            yield (
                "presamples",
                f"gives weights to edges, which the forward of model {model.name} does not take; leave it out",
            )
        if mode.samples is not None and run.save_embeddings:
            yield "save_embeddings", "training from samples does not predict; run `gnnloom predict` afterwards"
        if mode.samples is not None and self.task.on_pairs:
            yield "samples", f"they were drawn for vertices, and task {self.task.name} trains on pairs"
        if self.data.adjacency == ON_DISK:
            # Attention visits the edges themselves, forward and backward, and not only their products.
            if NEIGHBORS in model.kind.needs and not model.kind.on_edges:
                yield "adjacency", f"model {model.name} needs the adjacency in memory"
            if mode.kind.adjacency is Adjacency.RESTRICTED:
                yield "adjacency", f"mode {mode.name} needs the adjacency in memory"

    def _conflicts_without_types(self) -> Iterator[tuple[str, str]]:
        for name in _OF_TYPES:
            if self.value(name):
                reason = (
                    f"model {self.model.name} takes no graph with types; pass a module of your own whose forward takes"
                    " (x_dict, edge_index_dict), as --model mymodule:Model; see docs/how-to/typed-models.md"
                )
                yield name, reason

    def _conflicts_of_types(self) -> Iterator[tuple[str, str]]:
        mode, task = self.mode, self.task
        if task.on_pairs and mode.of_type is not None:
            yield "of_type", "pairs have the types of their relation; leave it out"
        if mode.relation is not None and not task.on_pairs:
            yield "relation", f"task {task.name} has no pairs; choose --task link, edge-class or edge-number"
        if not mode.on_types:
            of_type = "the type of the vertices to learn the labels of, with --of-type TYPE"
            what = "the relation whose pairs to learn, with --relation NAME" if task.on_pairs else of_type
            yield "model", f"its forward takes a graph with types; name {what}"
        for name in [each for each in self.changed() if each in _OF_SHARDS]:
            reason = (
                "has no effect on a graph with types, which has no shards and stays on disk, as its features do; leave"
                " the option out"
            )
            yield name, reason

    def _conflicts_of_rows(self) -> Iterator[tuple[str, str]]:
        """Models that need an adjacency where there is none, and modes that draw edges for models without it."""
        model, mode = self.model, self.mode
        reading = ", ".join(name for name, kind in MODES.items() if kind.reads_rows)
        able = ", ".join(name for name, kind in MODELS.items() if kind.is_rowwise)
        if mode.kind.reads_rows and not model.kind.is_rowwise:
            yield (
                "model",
                f"multiplies with the adjacency, which mode {mode.name} does not read; choose {able}, or another mode",
            )
        if model.kind.takes_steps and not mode.kind.reads_rows:
            yield "model", f"its input was propagated before; use mode {reading}"
        if model.kind.is_rowwise and mode.kind.is_sampled and not mode.kind.reads_rows:
            yield "mode", f"model {model.name} uses no edges; use mode {reading} or full"

    def _conflicts_of_features(self) -> Iterator[tuple[str, str]]:
        """Places and ways of the input features that exclude each other."""
        model, mode = self.model, self.mode
        learned, samples = f"learned input features (embed {model.embed})", f"samples {mode.samples!r}"
        if model.embed and mode.samples is not None and not mode.on_types:
            reason = (
                f"batches on disk hold stored features, which embed {model.embed} does not use; let the run draw its"
                " batches (without --samples)"
            )
            yield "samples", reason
        # Where vertices have types, some types have stored features.
        if model.embed and not mode.on_types:
            if self.data.feature_norm == "row":
                yield "feature_norm", f"{learned} are not scaled"
            if mode.cache_memory != options_of(ModeConfig)["cache_memory"].default:
                yield "cache_memory", f"{learned} change, so no rank keeps copies"
            if mode.maps_inputs:
                yield "inputs", f"{learned} are not stored; leave one of the two out"
        if not mode.maps_inputs:
            return
        if mode.samples is not None and not mode.on_types:
            yield "inputs", f"{samples} hold the features already; leave one of the two out"
        if not mode.kind.is_sampled and model.input_has_gradient:
            what = "train_features" if model.train_features else "skip_input_gradient False"
            yield "inputs", f"with {what}, the features have a gradient and are in memory"
        if mode.kind.is_sampled and self.task.on_pairs and not mode.on_types:
            yield "inputs", f"task {self.task.name!r} reads the features from memory"
        if mode.kind.is_sampled and self.run.save_embeddings:
            yield "inputs", "such a training does not predict (save_embeddings); run `gnnloom predict` later"

    @property
    def streams_adjacency(self) -> bool:
        """The adjacency stays on disk, and is read for every product with it."""
        # Only the result of such a run can be shown, for which nothing is read.
        if isinstance(self.model.name, UnconfirmedName):
            return True
        # Attention cannot read it from there. A model that takes edges reads none of it.
        evaluates = ROWS_ON_DISK in self.mode.kind.offers and NEIGHBORS not in self.model.kind.needs
        return self.data.adjacency == ON_DISK or evaluates or self.model.kind.on_edges

    @property
    def drops_targets(self) -> bool:
        """The products of a step leave out the pairs that it trains on."""
        # A model that treats rows one by one multiplies with no edges. Models of others are not imported to find out.
        kind = MODELS.get(self.model.name)
        return self.task.on_pairs and self.task.exclude_targets and not (kind is not None and kind.is_rowwise)

    @property
    def input_is_cached(self) -> bool:
        """The product of the adjacency and the input features is formed once, as neither of them changes."""
        # Rows of a batch differ from rows of the whole graph and of every other batch. So do rows of a graph without
        # the targets of a step.
        return self.model.caches_input and not self.mode.kind.is_sampled and not self.drops_targets

    @property
    def differentiates_products(self) -> bool:
        """Gradients go back through the products with the adjacency; sampled training has products of its own."""
        multiplies: bool = self.model.kind.load().multiplies
        return multiplies and not self.mode.kind.is_sampled
