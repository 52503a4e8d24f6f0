"""The configuration of a training run, composed of one part per component: its options, its name and its command."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.artifacts.propagated import Propagated
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.descriptors import UnconfirmedName, check_confirmed
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.option import Option, options_of
from gnnloom.storage.runs.run import Run
from gnnloom.storage.wording import shell_command
from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, ONE_LAYOUT, STREAMS
from gnnloom.trainer.algorithms.registry import algorithms_with
from gnnloom.trainer.config.algorithm_config import AlgorithmConfig, other_algorithm_options
from gnnloom.trainer.config.data_config import DataConfig
from gnnloom.trainer.config.fields import named_code
from gnnloom.trainer.config.loss_config import LossConfig, other_task_options
from gnnloom.trainer.config.mode_config import ModeConfig, other_mode_options
from gnnloom.trainer.config.model_config import ModelConfig
from gnnloom.trainer.config.optimization_config import ScheduleConfig, StoppingConfig
from gnnloom.trainer.config.run_config import RunConfig
from gnnloom.trainer.data.open_shards import TYPED_VERTICES, ShardKind, ShardRequest, find_propagated
from gnnloom.trainer.models.registry import MODELS
from gnnloom.trainer.modes.kind import (
    EDGES,
    INPUT_GRADIENT,
    LEARNED,
    PAIRS,
    RANKS_DECIDE,
    ROWS_ON_DISK,
    TYPES,
    Adjacency,
)
from gnnloom.trainer.modes.options import ON_DISK
from gnnloom.trainer.modes.registry import MODES
from gnnloom.trainer.tasks.open_links import check_step
from gnnloom.trainer.tasks.task import Task

#: Hexadecimal digits of the hash in a name: 32 bits, which make a collision among the runs of a dataset unlikely.
_DIGITS = 8


def derive_run_name(model: str, algorithm: str, ranks: str, decides: Any) -> str:
    """``MODEL-ALGORITHM-RANKS-HASH``.

    Args:
        ranks: number of ranks, or the process grid.
        decides: JSON values that determine the result; runs that differ in them get other names.
    """
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
    return f"{_short(model)}-{algorithm}-{ranks}-{digest[:_DIGITS]}"


def _short(model: str) -> str:
    """The model's name; of ``package.module:Class`` the class, in the letters that a run's name may have."""
    return re.sub("[^a-z0-9]+", "-", model.rpartition(":")[2].lower()).strip("-") or "model"


def other_options() -> dict[str, Option]:
    """The options by name."""
    return other_algorithm_options() | other_mode_options() | other_task_options()


def gather_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a configuration from the options of a command line.

    Args:
        values: option name to value. Options that are not fields move into the field that holds them as texts, unless
            they are None.
    """
    others = {
        "algorithm_options": other_algorithm_options(),
        "mode_options": other_mode_options(),
        "task_options": other_task_options(),
    }
    fields = {name: value for name, value in values.items() if not any(name in each for each in others.values())}
    for field, options in others.items():
        given = [f"{name}={each.shown(values[name])}" for name, each in options.items() if values.get(name) is not None]
        if given:
            fields[field] = (*fields.get(field, ()), *given)
    return fields


#: The option with the memory of each rank, which the planner replaces by fields before there is a configuration.
MEMORY: Final = "memory"
#: Free fields that decide the result if they are given. The names of runs are those that they had before there were
#: such fields.
_IF_GIVEN = (
    "mode_options", "task_options", "embed", "draw_once", "neighbor_sampler", "propagated", "steps", "attention",
    "of_type", "relation", "relation_fanout", "reverse",
)  # fmt: skip
#: Options that have no effect on a graph with types, where ranks map the graph and the features.
_OF_SHARDS = ("shards", "method", "permutation", "adjacency", "train_features", "samples", "cache_memory")


# Fields come in the reverse order of the bases: the algorithm's are the first ones in --help.
@dataclass(frozen=True, kw_only=True)
class TrainConfig(
    RunConfig, StoppingConfig, LossConfig, ScheduleConfig, ModelConfig, ModeConfig, DataConfig, AlgorithmConfig
):
    """Everything that determines a training run; checked where it is built (InputError).

    Whoever needs a component only says so in its signature, such as ``ScheduleConfig``, and is given the whole as one.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        # What a model allows is known only after its import, and was checked when the run was made.
        if isinstance(self.model, UnconfirmedName):
            return
        self._settle_types()
        if self.model_kind.on_edges:
            self._settle_edges()
        for what, needs in (
            (f"model {self.model}", self.model_kind.needs),
            (f"mode {self.mode}", self.mode_kind.needs),
            ("recompute", self._recomputed_needs),
        ):
            if not needs <= self.chosen_algorithm.capabilities:
                able = ", ".join(algorithms_with(needs))
                raise InputError(f"algorithm {self.algorithm!r}: {what} runs on {able} only")
        self._check_lacks()
        self._check_rows()
        if self.train_features or not self.skip_input_gradient:
            self._require(INPUT_GRADIENT, "train_features" if self.train_features else "skip_input_gradient")
        if self.embed:
            self._check_embed()
        if self.samples is not None and self.save_embeddings:
            message = "training from samples does not predict; run `gnnloom predict` afterwards"
            raise InputError(f"save_embeddings: {message}")
        if self.on_pairs:
            self._require(PAIRS, f"task {self.task!r}")
        if self.maps_inputs:
            self._check_inputs()
        if self.on_pairs and self.samples is not None:
            raise InputError(f"samples: they were drawn for vertices, and task {self.task} trains on pairs")
        self._check_adjacency()
        if self.mode_kind.check:
            # The layers of the user's own model are known only where it is built.
            num_layers = len(self.hidden) + 1 if self.model in MODELS else None
            self.mode_kind.check(self.own_mode_options(), num_layers)

    def _require(self, capability: str, what: str) -> None:
        """Refuse a mode that lacks a capability.

        Args:
            what: needs the capability, for the message.

        Raises:
            InputError: see above.
        """
        if capability not in self.mode_kind.offers:
            able = " or ".join(name for name, kind in MODES.items() if capability in kind.offers)
            raise InputError(f"{what}: mode {self.mode} does not {capability}; choose --mode {able}")

    def _settle_types(self) -> None:
        """Settle and check what a model of a graph with types requires.

        Raises:
            InputError: one of model and options is for graphs with types, and another is not.
        """
        if not self.model_kind.takes_types:
            for name in ("of_type", "relation", "relation_fanout", "reverse", "vertex_data"):
                if value := getattr(self, name):
                    raise InputError(
                        f"{name} {value!r}: model {self.model} takes no graph with types; pass a module of your own"
                        " whose forward takes (x_dict, edge_index_dict), as --model mymodule:Model; see"
                        " docs/how-to/typed-models.md"
                    )
            return
        self._require(TYPES, f"model {self.model}")
        if self.on_pairs and self.of_type is not None:
            raise InputError(f"of_type {self.of_type!r}: pairs have the types of their relation; leave it out")
        if self.relation is not None and not self.on_pairs:
            raise InputError(f"relation {self.relation!r}: task {self.task} has no pairs; choose --task link")
        if not self.on_types:
            what = "the relation whose pairs to learn, with --relation NAME"
            of_type = "the type of the vertices to learn the labels of, with --of-type TYPE"
            raise InputError(
                f"model {self.model}: its forward takes a graph with types; name {what if self.on_pairs else of_type}"
            )
        for name in _OF_SHARDS:
            value = getattr(self, name)
            if value != options_of(TrainConfig)[name].default:
                raise InputError(
                    f"{name} {value!r}: has no effect on a graph with types, which has no shards and stays on disk, as"
                    " its features do; leave the option out"
                )
        # The configuration of the run says so.
        self.settle("inputs", ON_DISK)

    def _check_lacks(self) -> None:
        """Refuse an option of the algorithm with which its operator lacks what the model, the mode or the data need.

        Raises:
            InputError: see above.
        """
        on_disk = frozenset({STREAMS}) if self.adjacency == "disk" else frozenset[str]()
        for name, values in self.chosen_algorithm.lacks.items():
            value = self.own_options()[name]
            lost, default = values.get(value, frozenset()), options_of(TrainConfig)[name].default
            wanting = [
                what
                for what, needs in (
                    (f"model {self.model}", self.model_kind.needs),
                    (f"mode {self.mode}", lost if self.mode_kind.is_sampled else frozenset()),
                    (f"adjacency {self.adjacency}", on_disk),
                )
                if needs & lost
            ]
            if wanting:
                raise InputError(f"{name} {value!r}: {wanting[0]} runs with {name} {default} only")

    def _settle_edges(self) -> None:
        """Settle and check what a model that takes the edges of batches requires.

        Raises:
            InputError: the mode has no edges to give, or an option is not for such a model.
        """
        if EDGES not in self.mode_kind.offers:
            able = " or ".join(name for name, kind in MODES.items() if EDGES in kind.offers)
            raise InputError(
                f"mode {self.mode}: model {self.model} is a module of torch that takes edges, and this mode gives none:"
                f" it multiplies by the distributed adjacency. Choose --mode {able}, or write the model with gnnloom's"
                " products; see docs/how-to/pyg-models.md and docs/how-to/own-model.md"
            )
        # One graph has to serve all layers. The configuration of the run says so.
        if "draw_once" in self.mode_kind.options:
            self.settle("draw_once", True)
        if self.save_embeddings:
            raise InputError(
                f"save_embeddings: model {self.model} is a module of torch, whose hidden layers are its own"
            )
        if self.presamples and not self.model_kind.takes_weights:
            raise InputError(
                f"presamples {self.presamples}: gives weights to edges, which the forward of model {self.model}"
                " does not take; leave it out"
            )

    def _check_rows(self) -> None:
        """Refuse models that need an adjacency where there is none, and modes that draw edges for models without it.

        Raises:
            InputError: see above.
        """
        model, mode = self.model_kind, self.mode_kind
        reading = ", ".join(name for name, kind in MODES.items() if kind.reads_rows)
        if mode.reads_rows and not model.is_rowwise:
            able = ", ".join(name for name, kind in MODELS.items() if kind.is_rowwise)
            raise InputError(
                f"model {self.model!r}: multiplies with the adjacency, which mode {self.mode} does not read; choose"
                f" {able}, or another mode"
            )
        if model.takes_steps and not mode.reads_rows:
            raise InputError(f"model {self.model!r}: its input was propagated before; use mode {reading}")
        if model.is_rowwise and mode.is_sampled and not mode.reads_rows:
            raise InputError(f"mode {self.mode}: model {self.model} uses no edges; use mode {reading} or full")

    def _check_embed(self) -> None:
        """Refuse what would do nothing, or cannot be, if the input features are learned.

        Raises:
            InputError: see above.
        """
        self._require(LEARNED, f"embed {self.embed}")
        if self.samples is not None:
            raise InputError(
                f"samples {self.samples!r}: batches on disk hold stored features, which embed {self.embed} does not"
                " use; let the run draw its batches (without --samples)"
            )
        if self.on_types:
            # Other types have stored features.
            return
        for name, why in (("feature_norm", "are not scaled"), ("cache_memory", "change, so no rank keeps copies")):
            value, default = getattr(self, name), options_of(TrainConfig)[name].default
            if value not in {default, "none"}:
                raise InputError(f"{name} {value!r}: learned input features (embed {self.embed}) {why}")

    def _check_inputs(self) -> None:
        """Refuse what needs the input features in memory, if they stay on disk.

        Raises:
            InputError: see above.
        """
        start = f"inputs {self.inputs!r}"
        if self.samples is not None:
            raise InputError(f"{start}: samples {self.samples!r} hold the features already; leave one of the two out")
        if self.embed and not self.on_types:
            raise InputError(f"{start}: learned features (embed {self.embed}) are not stored; leave one of the two out")
        if not self.mode_kind.is_sampled:
            if STREAMS not in self.chosen_algorithm.capabilities:
                able = ", ".join(algorithms_with(frozenset({STREAMS})))
                raise InputError(f"{start}: algorithm {self.algorithm} keeps them in memory; choose {able}")
            if self.input_has_gradient:
                what = "train_features" if self.train_features else "skip_input_gradient False"
                raise InputError(f"{start}: with {what}, the features have a gradient and are in memory")
            return
        if self.on_pairs and not self.on_types:
            raise InputError(f"{start}: task {self.task!r} reads the features from memory")
        if self.save_embeddings:
            raise InputError(
                f"{start}: such a training does not predict (save_embeddings); run `gnnloom predict` later"
            )

    def _check_adjacency(self) -> None:
        if self.adjacency == "memory":
            return
        if STREAMS not in self.chosen_algorithm.capabilities:
            able = ", ".join(algorithms_with(frozenset({STREAMS})))
            raise InputError(
                f"adjacency {self.adjacency!r}: algorithm {self.algorithm} keeps it in memory; choose {able}"
            )
        # Attention visits the edges themselves, forward and backward, and not only their products.
        if NEIGHBORS in self.model_kind.needs and not self.model_kind.on_edges:
            raise InputError(f"adjacency {self.adjacency!r}: model {self.model} needs the adjacency in memory")
        if self.mode_kind.adjacency is Adjacency.RESTRICTED:
            raise InputError(f"adjacency {self.adjacency!r}: mode {self.mode} needs the adjacency in memory")

    @property
    def reads(self) -> ShardKind[Any]:
        """The kind of shards that a rank reads, or the data of a graph with types."""
        return TYPED_VERTICES if self.on_types else self.chosen_algorithm.reads

    @property
    def streams_adjacency(self) -> bool:
        """The adjacency stays on disk, and is read for every product with it."""
        # Only the result of such a run can be shown, for which nothing is read.
        if isinstance(self.model, UnconfirmedName):
            return True
        # Attention cannot read it from there. A model that takes edges reads none of it.
        evaluates = ROWS_ON_DISK in self.mode_kind.offers and NEIGHBORS not in self.model_kind.needs
        return self.adjacency == "disk" or evaluates or self.model_kind.on_edges

    @property
    def maps_inputs(self) -> bool:
        """The features are not in memory: they are mapped, whole or in the rows of every batch."""
        return self.inputs == ON_DISK

    @property
    def reads_batches(self) -> bool:
        """Batches come with their features, so that no rank has features or rows of the adjacency in memory."""
        return self.samples is not None or (self.maps_inputs and self.mode_kind.is_sampled)

    @property
    def needs(self) -> frozenset[str]:
        """Capabilities that the algorithm must have for the model, the mode and the place of the adjacency."""
        on_disk = self.adjacency == "disk" or (self.maps_inputs and not self.mode_kind.is_sampled)
        streams = frozenset({STREAMS}) if on_disk else frozenset[str]()
        return self.model_kind.needs | self.mode_kind.needs | self._recomputed_needs | streams

    @property
    def _recomputed_needs(self) -> frozenset[str]:
        return frozenset({ONE_LAYOUT}) if self.recompute else frozenset()

    @property
    def drops_targets(self) -> bool:
        # A model that treats rows one by one multiplies with no edges. Models of others are not imported to find out.
        kind = MODELS.get(self.model)
        return super().drops_targets and not (kind is not None and kind.is_rowwise)

    def own_task_options(self, task: Task) -> dict[str, Any]:
        options = super().own_task_options(task)
        return {**options, "exclude_targets": self.drops_targets} if "exclude_targets" in options else options

    @property
    def input_is_cached(self) -> bool:
        # The rows of a batch differ from those of the whole graph, and from those of every other batch; so do those of
        # a graph without the targets of a step.
        return super().input_is_cached and not self.mode_kind.is_sampled and not self.drops_targets

    @property
    def differentiates_products(self) -> bool:
        """Gradients go back through the products with the adjacency; sampled training has products of its own."""
        multiplies: bool = self.model_kind.load().multiplies
        return multiplies and not self.mode_kind.is_sampled

    def shard_request(self, dataset: Dataset) -> ShardRequest:
        """The choice of shards; unless a key is given, of the graph without the links that the task reads."""
        graph = None if self.shards or self.on_types else self.message_graph(dataset)
        return ShardRequest(
            algorithm=self.algorithm,
            ranks=self.ranks,
            key=self.shards,
            method=self.method,
            permutation=self.permutation,
            streams_adjacency=self.streams_adjacency,
            made_from={} if graph is None else {"graph": graph},
            of_type=self.of_type,
            relation=self.relation,
            links=self.links if self.on_types else None,
            vertex_data=self.vertex_data,
            reverse=self.reverse,
        )

    def own_links(self, dataset: Dataset, shards: Artifact) -> Links | None:
        """The links that the task reads, checked; None for a task on vertices.

        Args:
            shards: that the run reads; the graph if it has types.

        Raises:
            InputError, NotFoundError: there are none that fit, or several.
        """
        links = self.links_of(dataset, shards.key if self.on_types else shards.inputs["graph"], shards.path)
        if links is not None and self.drops_targets and not self.mode_kind.is_sampled:
            check_step(dataset, links, self.link_batch)
        return links

    def own_propagated(self, dataset: Dataset, shards: Artifact) -> Propagated | None:
        """The propagated values that the mode reads; None if it reads none.

        Args:
            shards: that the run reads.

        Raises:
            InputError, NotFoundError: there are none that fit, or several.
        """
        if not self.mode_kind.reads_rows:
            return None
        found = find_propagated(dataset, self.propagated, self.steps, shards)
        # Classes of the user's own take none, and need not be imported for this.
        if found is None and self.model in MODELS and MODELS[self.model].takes_steps and not self.steps:
            raise NotFoundError(
                f"model {self.model!r}: dataset {dataset.name} has no propagated features of this graph; make some with"
                f" `gnnloom propagate {dataset.name} --steps 3`, or train on the features alone with --steps 0"
            )
        return found

    @property
    def run_name(self) -> str:
        """The run's name: as given, or model, algorithm, grid and a hash of everything that determines the result."""
        if self.run is not None:
            return self.run
        ranks = "x".join(map(str, self.grid or (self.ranks,)))
        return derive_run_name(self.model, self.algorithm, ranks, self.identity())

    def named_with_shards(self, shards: str) -> Self:
        """This configuration with the key of its shards; a run without a name is named after the shards too.

        Recipes use such names, because the same options may be used with other shards.

        Args:
            shards: of a graph with types, which has no shards, the key of the graph.
        """
        config = self if self.on_types else replace(self, shards=shards)
        if config.run is not None:
            return config
        decides = [config.identity(), shards, config.algorithm, config.ranks, config.grid]
        return replace(config, run=derive_run_name(config.model, config.algorithm, str(config.ranks), decides))

    def identity(self) -> dict[str, Any]:
        """The fields that determine the result, and that a resumed run must share, as JSON."""
        # Free fields change how far and where a run goes but not what it computes, so resuming with others is safe.
        deciding = self.deciding
        return {name: value for name, value in self.to_json().items() if name in deciding}

    @property
    def lr_follows_evaluations(self) -> bool:
        """The learning rate depends on metrics that are measured in some epochs only."""
        return self.schedule == "plateau" and self.monitor != "loss"

    @property
    def deciding(self) -> set[str]:
        """Names of the fields that determine the result."""
        decides = {field.name for field in dataclasses.fields(self) if not field.metadata["free"]}
        decides |= {"ranks"} if RANKS_DECIDE in self.mode_kind.offers else set()
        options = options_of(type(self))
        decides |= {name for name in _IF_GIVEN if getattr(self, name) != options[name].default} | self.own_task_fields
        return decides | ({"eval_every"} if self.lr_follows_evaluations else set())

    def changes_since(self, before: TrainConfig) -> list[str]:
        """Fields in which a resumed run must not differ from ``before`` but does, such as ``lr 0.1 (now 0.2)``.

        The name of the dataset is not among them: a dataset may have been imported under another name. The data that
        the run reads are compared by their keys instead.
        """
        # All fields: the two configurations may not be decided by the same ones.
        then, now = before.to_json(), self.to_json()
        names = [name for name in now if name in (self.deciding | before.deciding) - {"dataset"}]
        return [f"{name} {then[name]!r} (now {now[name]!r})" for name in names if then[name] != now[name]]

    def check_code(self) -> None:
        """Check that no code that the configuration names is named by a stored file alone.

        Raises:
            InputError: some is; names all of it.
        """
        check_confirmed(*named_code(type(self), self.to_json()).values())

    def own_code(self) -> dict[str, str]:
        """Option to ``package.module:NAME`` of the code that may be imported, as the command names it."""
        named = named_code(type(self), self.to_json())
        return {name: code for name, code in named.items() if not isinstance(code, UnconfirmedName)}

    @classmethod
    def of_run(cls, run: Run, **named: str | None) -> Self:
        """The configuration that a run was made with.

        Anybody may have written it, so code that it names as ``package.module:NAME`` is imported only if the command
        names the same code. Otherwise the configuration can be shown and compared, and whatever needs the code fails.

        Args:
            named: values of options that the command gives, such as ``model``; None if it does not give the option.

        Raises:
            InputError: it is not a valid configuration, or has another value of an option in ``named``; the file is
                named.
        """
        content, path = run.config(), run.config_path
        for name, given in named.items():
            value = content.get(name, options_of(cls)[name].default)
            if given not in {None, value}:
                raise InputError(f"{path}: {name} {value!r}, but the command gives {given!r}; leave the option out")
        stored = named_code(cls, content).items()
        content |= {name: UnconfirmedName(code, path, name) for name, code in stored if named.get(name) is None}
        try:
            return cls.from_json(content)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error


#: Fields that are not options of their own, and those that say how to go on with a run rather than what to train.
_LEFT_OUT = frozenset({"catalog", "dataset", "algorithm_options", "mode_options", "task_options", "restart"})


def command_line(config: TrainConfig) -> str:
    """``gnnloom train`` with every option that differs from its default, quoted for a shell."""
    words = ["gnnloom", "--catalog", str(Path(config.catalog).absolute()), "train", config.dataset]
    for name, option in options_of(TrainConfig).items():
        value = getattr(config, name)
        if name in _LEFT_OUT or value == option.default:
            continue
        flag = name.replace("_", "-")
        words += [f"--{'' if value else 'no-'}{flag}"] if option.kind is bool else [f"--{flag}", option.shown(value)]
    for item in config.algorithm_options:
        name, _, value = item.partition("=")
        words += [f"--{name.replace('_', '-')}", value]
    return shell_command(*words)
