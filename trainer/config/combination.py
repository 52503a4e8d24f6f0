"""Checks which values of the parts of a training configuration can be combined."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from gnnloom.storage.descriptors import UnconfirmedName
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import options_of, part
from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, ONE_LAYOUT, STREAMS
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.config.algorithm_config import AlgorithmConfig
from gnnloom.trainer.config.fields import Config
from gnnloom.trainer.config.mode_config import ModeConfig
from gnnloom.trainer.config.model_config import ModelConfig
from gnnloom.trainer.config.optimization_config import OptimizationConfig, StoppingConfig
from gnnloom.trainer.config.run_config import DataConfig, RunConfig
from gnnloom.trainer.config.task_config import TaskConfig
from gnnloom.trainer.models.kind import EDGE_WEIGHTS, EMBEDDINGS, ROWWISE, TYPES
from gnnloom.trainer.models.registry import MODELS
from gnnloom.trainer.modes.kind import EDGES, INPUT_GRADIENT, LEARNED, PAIRS, ROWS, ROWS_ON_DISK, WITHOUT_EDGES
from gnnloom.trainer.modes.options import ON_DISK
from gnnloom.trainer.modes.registry import MODES
from gnnloom.trainer.tasks.registry import TASKS

#: Options that only graphs with types have.
_OF_TYPES = ("of_type", "relation", "relation_fanout", "fanout_total", "reverse", "vertex_data")
#: Options that have no effect on a graph with types, where ranks map the graph and the features.
_OF_SHARDS = ("shards", "method", "permutation", "adjacency", "train_features", "cache_memory")

#: Capabilities of tasks, of graphs and of places of the input features, in the words of messages; see also ``PAIRS``,
#: ``INPUT_GRADIENT`` and ``EMBEDDINGS``.
_VERTICES = "train on vertices"
_SHARDS, _HAS_TYPES = "train from shards", "have types"
_STORED, _VERTEX_DATA = "read stored features", "read the features of the vertex data"
#: Capabilities of features in memory.
_IN_MEMORY = frozenset({_STORED, _VERTEX_DATA, INPUT_GRADIENT, EMBEDDINGS, PAIRS})
#: Advice, or further advice, if a part lacks a capability.
_OTHER_WAYS = {
    ("mode", EDGES): ", or write the model with gnnloom's products; see docs/how-to/pyg-models.md and"
    " docs/how-to/own-model.md",
    ("model", TYPES): "; pass a module of your own whose forward takes (x_dict, edge_index_dict), as --model"
    " mymodule:Model; see docs/how-to/typed-models.md",
    ("graph", _SHARDS): "; ranks map the stored graph and its features, so leave the option out",
    ("inputs", EMBEDDINGS): ", or run `gnnloom predict` afterwards",
}


@dataclass(frozen=True)
class Need:
    """Capabilities that a part of the configuration must have.

    Attributes:
        what: the option that needs them, with its value, for messages.
        of: the part; see :meth:`Combination._parts`.
    """

    what: str
    of: str
    capabilities: frozenset[str]


@dataclass(frozen=True)
class Part:
    """A chosen part of the configuration, with the capabilities that other parts may need.

    Attributes:
        name: name for messages, such as ``mode full``.
        option: the option that chooses it; empty if the choices name it themselves.
        choices: all that may be chosen, with their capabilities.
    """

    name: str
    capabilities: frozenset[str]
    option: str
    choices: Mapping[str, frozenset[str]]

    def check(self, need: Need) -> None:
        """Refuse a part that lacks a capability.

        Raises:
            InputError: a capability is lacking; names the choices that have all needed capabilities.
        """
        lacking = sorted(need.capabilities - self.capabilities)
        if lacking:
            able = " or ".join(name for name, found in self.choices.items() if need.capabilities <= found)
            choice = f"; choose {self.option}{able}" if able else ""
            other = _OTHER_WAYS.get((need.of, lacking[0]), "")
            raise InputError(f"{need.what}: {self.name} does not {lacking[0]}{choice}{other}")


class _Capable(Protocol):
    @property
    def capabilities(self) -> frozenset[str]: ...


def _capabilities(kinds: Mapping[str, _Capable]) -> dict[str, frozenset[str]]:
    """Capabilities of descriptors by name."""
    return {name: kind.capabilities for name, kind in kinds.items()}


@dataclass(frozen=True, kw_only=True)
class Combination(Config):
    """The parts of a training configuration; InputError if they cannot be combined.

    A part checks its own options. Rules about several parts are here, all in one form: an option or a part needs
        capabilities that another part states, see :meth:`_needs`. A part that lacks a capability is refused; the
        message names the parts that have it.
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
        # The abilities of a model are known only after its import, and were checked when the run was made.
        if isinstance(self.model.name, UnconfirmedName):
            return
        for need in self._needs():
            for each in self._parts(need.of):
                each.check(need)
        # The stored configuration states what runs: features of a graph with types stay on disk, and one graph serves
        # all layers of a model that takes edges.
        if self.model.kind.takes_types:
            self.settle("mode", self.mode.with_options(inputs=ON_DISK))
        if self.model.kind.on_edges and "draw_once" in self.mode.kind.options:
            self.settle("mode", self.mode.with_options(draw_once=True))
        if self.mode.kind.check:
            # The layers of the user's own model are known only when it is built.
            num_layers = len(self.model.hidden) + 1 if self.model.name in MODELS else None
            self.mode.kind.check(self.mode.own_options(), num_layers)

    def _needs(self) -> Iterator[Need]:
        """All capabilities that options and parts need of other parts."""
        mode, model = self.mode, self.model
        kind, on_disk = model.kind, self.data.adjacency == ON_DISK
        keeps_rows = mode.cache_memory != options_of(ModeConfig)["cache_memory"].default
        # Whether the need applies, the option with the need, the parts that must have the capabilities, and the
        # capabilities.
        rules: list[tuple[bool, str, tuple[str, ...], Collection[str]]] = [
            *((bool(self.value(each)), each, ("model",), [TYPES]) for each in _OF_TYPES),
            (mode.of_type is not None, "of_type", ("task",), [_VERTICES]),
            (mode.relation is not None, "relation", ("task",), [PAIRS]),
            (kind.takes_types, "model", ("mode",), [TYPES]),
            (kind.takes_types, "model", ("graph",), [_HAS_TYPES]),
            *((kind.takes_types, each, ("graph",), [_SHARDS]) for each in self.changed() if each in _OF_SHARDS),
            (kind.on_edges, "model", ("mode",), [EDGES]),
            (kind.on_edges and mode.presamples != 0, "presamples", ("model",), [EDGE_WEIGHTS]),
            (mode.kind.reads_rows, "mode", ("model",), [ROWWISE]),
            (kind.takes_steps, "model", ("mode",), [ROWS]),
            (kind.is_rowwise, "model", ("mode",), [WITHOUT_EDGES]),
            (self.task.on_pairs, "task", ("mode", "inputs"), [PAIRS]),
            (model.train_features, "train_features", ("mode", "inputs"), [INPUT_GRADIENT]),
            (not model.skip_input_gradient, "skip_input_gradient", ("mode", "inputs"), [INPUT_GRADIENT]),
            (model.embed > 0, "embed", ("mode",), [LEARNED]),
            (mode.samples is not None, "samples", ("inputs",), [_STORED]),
            (mode.maps_inputs, "inputs", ("inputs",), [_VERTEX_DATA]),
            (self.data.feature_norm == "row", "feature_norm", ("inputs",), [_STORED]),
            (keeps_rows, "cache_memory", ("inputs",), [_STORED]),
            (self.run.save_embeddings, "save_embeddings", ("model", "inputs"), [EMBEDDINGS]),
            (True, "model", ("algorithm",), kind.needs),
            (True, "mode", ("algorithm",), mode.kind.needs),
            (model.recompute, "recompute", ("algorithm",), [ONE_LAYOUT]),
            (mode.maps_inputs and not mode.kind.is_sampled, "inputs", ("algorithm",), [ONE_LAYOUT]),
            (on_disk, "adjacency", ("algorithm", "model", "mode"), [STREAMS]),
        ]
        for applies, option, parts, capabilities in rules:
            if applies:
                value = self.value(option)
                what = option if value is True else f"{option} {value!r}"
                yield from (Need(what, of, frozenset(capabilities)) for of in parts)

    @property
    def needs(self) -> frozenset[str]:
        """Capabilities that the algorithm must have for the model, the mode and the place of the data."""
        return frozenset[str]().union(*(need.capabilities for need in self._needs() if need.of == "algorithm"))

    def _parts(self, of: str) -> Iterator[Part]:
        """The chosen parts that a need is about, with their alternatives."""
        mode, model = self.mode, self.model
        if of == "mode":
            yield Part(f"mode {mode.name}", mode.kind.capabilities, "--mode ", _capabilities(MODES))
        elif of == "model":
            yield Part(f"model {model.name}", model.kind.capabilities, "--model ", _capabilities(MODELS))
        elif of == "algorithm":
            # Some values of its options take away capabilities.
            algorithm, capabilities = self.algorithm, self.algorithm.kind.capabilities
            yield Part(f"algorithm {algorithm.name}", capabilities, "--algorithm ", _capabilities(ALGORITHMS))
            for name, values in algorithm.kind.lacks.items():
                value, usual = algorithm.own_options()[name], options_of(AlgorithmConfig)[name].default
                left = capabilities - values.get(value, frozenset())
                yield Part(f"{name} {value}", left, f"--{name.replace('_', '-')} ", {str(usual): capabilities})
        elif of == "task":
            choices = {name: frozenset({PAIRS if task.on_pairs else _VERTICES}) for name, task in TASKS.items()}
            chosen = frozenset({PAIRS if self.task.on_pairs else _VERTICES})
            yield Part(f"task {self.task.name}", chosen, "--task ", choices)
        elif of == "graph":
            named = "--relation NAME" if self.task.on_pairs else "--of-type TYPE"
            has_types = frozenset({_HAS_TYPES})
            chosen, name = (has_types, "a graph with types") if mode.on_types else (frozenset({_SHARDS}), "the graph")
            yield Part(name, chosen, "", {named: has_types})
        else:
            yield self._inputs()

    def _inputs(self) -> Part:
        """The place of the input features. In a graph with types, some types always have stored features."""
        mode, model = self.mode, self.model
        if mode.on_types:
            on_disk = frozenset({_STORED, _VERTEX_DATA, PAIRS})
            return Part("samples", on_disk - {PAIRS}, "", {}) if mode.samples else Part("types", on_disk, "", {})
        if model.embed:
            learned = _IN_MEMORY - {_STORED, _VERTEX_DATA}
            return Part(f"embed {model.embed}", learned, "", {"stored features (without --embed)": _IN_MEMORY})
        if mode.samples is not None:
            drawn = {"batches that the run draws (without --samples)": _IN_MEMORY}
            return Part(f"samples {mode.samples}", frozenset({_STORED}), "", drawn)
        on_disk = _IN_MEMORY - {INPUT_GRADIENT}
        if mode.kind.is_sampled:
            on_disk -= {EMBEDDINGS, PAIRS}
        return Part(
            f"inputs {mode.inputs}", on_disk if mode.maps_inputs else _IN_MEMORY, "--inputs ", {"memory": _IN_MEMORY}
        )

    @property
    def streams_adjacency(self) -> bool:
        """The adjacency stays on disk, and is read for every product with it."""
        # Only the result of such a run can be shown, and that reads nothing.
        if isinstance(self.model.name, UnconfirmedName):
            return True
        # Attention cannot read the adjacency from disk. A model that takes edges does not read it.
        evaluates = ROWS_ON_DISK in self.mode.kind.offers and NEIGHBORS not in self.model.kind.needs
        return self.data.adjacency == ON_DISK or evaluates or self.model.kind.on_edges

    @property
    def drops_targets(self) -> bool:
        """The products of a step leave out the pairs on which it trains."""
        # A model that treats rows one by one does not multiply by the adjacency. Users' models are not imported to find
        # out.
        kind = MODELS.get(self.model.name)
        return self.task.on_pairs and self.task.exclude_targets and not (kind is not None and kind.is_rowwise)

    @property
    def input_is_cached(self) -> bool:
        """The product of the adjacency and the input features is formed once, because both are constant."""
        # Rows of a batch differ from rows of the whole graph and of every other batch. The same holds for rows of a
        # graph without the targets of a step.
        return self.model.caches_input and not self.mode.kind.is_sampled and not self.drops_targets

    @property
    def differentiates_products(self) -> bool:
        """Gradients go back through the products with the adjacency; sampled training has its own products."""
        multiplies: bool = self.model.kind.load().multiplies
        return multiplies and not self.mode.kind.is_sampled
