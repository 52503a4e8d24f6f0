"""The configuration of a training run, composed of one part per component: its options, its name and its command."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.artifacts.propagated import Propagated
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.descriptors import UnconfirmedName, check_confirmed
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.option import Option, options_of
from gnnloom.storage.runs.run import Run
from gnnloom.storage.wording import shell_command
from gnnloom.trainer.config.algorithm_config import ALGORITHM_OPTIONS, AlgorithmConfig
from gnnloom.trainer.config.combination import Combination
from gnnloom.trainer.config.fields import deciding_options, named_code
from gnnloom.trainer.config.mode_config import MODE_OPTIONS, ModeConfig
from gnnloom.trainer.config.task_config import TASK_OPTIONS, TaskConfig
from gnnloom.trainer.data.open_shards import TYPED_VERTICES, ShardKind, ShardRequest, find_propagated
from gnnloom.trainer.models.options import ModelOptions
from gnnloom.trainer.models.registry import MODELS
from gnnloom.trainer.modes.kind import RANKS_DECIDE
from gnnloom.trainer.tasks.open_links import check_step, open_links
from gnnloom.trainer.tasks.registry import TASKS
from gnnloom.trainer.tasks.task import Task

if TYPE_CHECKING:
    from gnnloom.trainer.data.typed_vertices import TypedSchema

#: Hexadecimal digits of the hash in a name: 32 bits, which make a collision among the runs of a dataset unlikely.
_DIGITS = 8


def derive_run_name(model: str, algorithm: str, ranks: str, decides: Any) -> str:
    """``MODEL-ALGORITHM-RANKS-HASH``.

    Args:
        ranks: number of ranks, or the process grid.
        decides: JSON values that determine the result; runs with different values get different names.
    """
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
    return f"{_short(model)}-{algorithm}-{ranks}-{digest[:_DIGITS]}"


def _short(model: str) -> str:
    """The model's name, or the class of ``package.module:Class``, in characters that a run's name may have."""
    return re.sub("[^a-z0-9]+", "-", model.rpartition(":")[2].lower()).strip("-") or "model"


def other_options() -> dict[str, Option]:
    """The options by name."""
    return {name: option for options in _other_options().values() for name, option in options.items()}


def _other_options() -> dict[str, dict[str, Option]]:
    """The options of other packages, by the field that holds them."""
    return {
        "algorithm_options": ALGORITHM_OPTIONS.others(AlgorithmConfig),
        "mode_options": MODE_OPTIONS.others(ModeConfig),
        "task_options": TASK_OPTIONS.others(TaskConfig),
    }


def gather_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a configuration from the options of a command line.

    Args:
        values: option name to value. Options that are not fields move into the field that holds them as texts, unless
            they are None.
    """
    others = _other_options()
    fields = {name: value for name, value in values.items() if not any(name in each for each in others.values())}
    for field, options in others.items():
        given = [f"{name}={each.shown(values[name])}" for name, each in options.items() if values.get(name) is not None]
        if given:
            fields[field] = (*fields.get(field, ()), *given)
    return fields


#: The option with the memory of each rank, which the planner replaces by fields before a configuration is built.
MEMORY: Final = "memory"
#: Free fields that affect the result if they are given. They are not part of the names of runs, so older names stay
#: valid.
_IF_GIVEN = (
    "mode_options", "task_options", "embed", "draw_once", "neighbor_sampler", "propagated", "steps", "attention",
    "of_type", "relation", "relation_fanout", "fanout_total", "reverse",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Combination):
    """Everything that determines a training run: the parts of the configuration, and their combined meaning.

    ``TrainConfig.of(catalog="catalog", dataset="web", hidden=(16,))`` builds every part from its options. An option is
    a field of its part, such as ``config.model.hidden``; the option that chooses a component is its ``name``, such as
    ``config.model.name``.
    """

    @property
    def reads(self) -> ShardKind[Any]:
        """The kind of shards that a rank reads, or the data of a graph with types."""
        return TYPED_VERTICES if self.mode.on_types else self.algorithm.kind.reads

    def options_of_model(
        self, num_features: int, num_outputs: int, num_inputs: int = 1, schema: TypedSchema | None = None
    ) -> ModelOptions:
        """Everything that determines the model except its weights.

        Args:
            num_features: number of stored features of a vertex; ignored if features are learned instead.
            num_inputs: number of matrices in the input, each with ``num_features`` columns.
            schema: the types and relations of a graph with types.
        """
        model = self.model
        return ModelOptions(
            dims=(model.embed or num_features * num_inputs, *model.hidden, num_outputs),
            bias=model.bias,
            input_dropout=model.input_dropout,
            product_order=model.product_order,
            input_needs_gradient=model.input_has_gradient,
            input_is_kept=self.input_is_cached,
            norm=model.norm,
            residual=model.residual,
            unit_embedding=model.unit_embedding,
            recompute=model.recompute,
            num_inputs=num_inputs,
            own=model.own_options(),
            module=model.name if model.kind.on_edges else "",
            schema=schema,
        )

    def own_task_options(self, task: Task) -> dict[str, Any]:
        """The options of the task by name, as the model and the mode take them."""
        options = self.task.own_options(task)
        return {**options, "exclude_targets": self.drops_targets} if "exclude_targets" in options else options

    def shard_request(self, dataset: Dataset) -> ShardRequest:
        """The choice of shards; by default, shards of the graph without the links that the task reads."""
        data, mode = self.data, self.mode
        graph = None if data.shards or mode.on_types else self.task.message_graph(dataset)
        return ShardRequest(
            algorithm=self.algorithm.name,
            ranks=self.algorithm.ranks,
            key=data.shards,
            method=data.method,
            permutation=data.permutation,
            streams_adjacency=self.streams_adjacency,
            made_from={} if graph is None else {"graph": graph},
            of_type=mode.of_type,
            relation=mode.relation,
            links=self.task.links if mode.on_types else None,
            vertex_data=mode.vertex_data,
            reverse=mode.reverse,
        )

    def own_links(self, dataset: Dataset, shards: Artifact) -> Links | None:
        """The links that the task reads, checked; None for a task on vertices.

        Args:
            shards: shards that the run reads; the graph if it has types.

        Raises:
            InputError, NotFoundError: there are none that fit, or several.
        """
        if not self.task.on_pairs:
            return None
        graph = shards.key if self.mode.on_types else shards.inputs["graph"]
        links = open_links(TASKS[self.task.name], dataset, graph, self.task.links, shards.path)
        if self.drops_targets and not self.mode.kind.is_sampled:
            check_step(dataset, links, self.task.link_batch)
        return links

    def own_propagated(self, dataset: Dataset, shards: Artifact) -> Propagated | None:
        """The propagated values that the mode reads; None if it reads none.

        Args:
            shards: that the run reads.

        Raises:
            InputError, NotFoundError: there are none that fit, or several.
        """
        if not self.mode.kind.reads_rows:
            return None
        model, steps = self.model.name, self.mode.steps
        found = find_propagated(dataset, self.mode.propagated, steps, shards)
        # A user's own classes take none, and need not be imported for this.
        if found is None and model in MODELS and MODELS[model].takes_steps and not steps:
            raise NotFoundError(
                f"model {model!r}: dataset {dataset.name} has no propagated features of this graph; make some with"
                f" `gnnloom propagate {dataset.name} --steps 3`, or train on the features alone with --steps 0"
            )
        return found

    @property
    def run_name(self) -> str:
        """The run's name: as given, or model, algorithm, grid and a hash of everything that determines the result."""
        if self.run.name is not None:
            return self.run.name
        ranks = "x".join(map(str, self.algorithm.grid or (self.algorithm.ranks,)))
        return derive_run_name(self.model.name, self.algorithm.name, ranks, self.identity())

    def name_with_shards(self, shards: str) -> str:
        """The run's name; the name of an unnamed run also depends on the shards.

        Recipes use such names, because the same options may be used with other shards.

        Args:
            shards: key of the shards; for a graph with types, which has no shards, the key of the graph.
        """
        if self.run.name is not None:
            return self.run.name
        algorithm = self.algorithm
        decides = [self.identity(), shards, algorithm.name, algorithm.ranks, algorithm.grid]
        return derive_run_name(self.model.name, algorithm.name, str(algorithm.ranks), decides)

    def identity(self) -> dict[str, Any]:
        """The fields that determine the result, and that a resumed run must share, as JSON."""
        # Free fields affect how long and where a run goes but not its computation, so resuming with other values is
        # safe.
        deciding = self.deciding
        return {name: value for name, value in self.to_json().items() if name in deciding}

    @property
    def deciding(self) -> set[str]:
        """Names of the fields that determine the result."""
        decides = set(deciding_options(type(self))) | self.task.own_fields
        decides |= {"ranks"} if RANKS_DECIDE in self.mode.kind.offers else set()
        # The learning rate then depends on metrics that are measured only in some epochs.
        follows = self.optimization.schedule == "plateau" and self.stopping.monitor != "loss"
        decides |= {"eval_every"} if follows else set()
        return decides | {name for name in self.changed() if name in _IF_GIVEN}

    def changes_since(self, before: TrainConfig) -> list[str]:
        """Fields in which a resumed run must not differ from ``before`` but does, such as ``lr 0.1 (now 0.2)``.

        The name of the dataset is not included: a dataset may have been imported under another name. The data that
        the run reads are compared by their keys instead.
        """
        # All fields: the deciding fields of the two configurations may differ.
        then, now = before.to_json(), self.to_json()
        names = [name for name in now if name in (self.deciding | before.deciding) - {"dataset"}]
        return [f"{name} {then[name]!r} (now {now[name]!r})" for name in names if then[name] != now[name]]

    def check_code(self) -> None:
        """Check that the command itself names all code in the configuration: no code comes only from a stored file.

        Raises:
            InputError: the command does not name some code; the message names all of it.
        """
        check_confirmed(*named_code(type(self), self.to_json()).values())

    def own_code(self) -> dict[str, str]:
        """Option to ``package.module:NAME`` of the code that the command names, which may be imported."""
        named = named_code(type(self), self.to_json())
        return {name: code for name, code in named.items() if not isinstance(code, UnconfirmedName)}

    @classmethod
    def of_run(cls, run: Run, **named: str | None) -> Self:
        """The configuration with which a run was made.

        Anybody may have written it, so code that it names as ``package.module:NAME`` is imported only if the command
        names the same code. Otherwise the configuration can be shown and compared, and everything that needs the code
        fails.

        Args:
            named: values of options that the command gives, such as ``model``; None if the command does not give the
                option.

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
            return cls.of(**content)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error


#: Options that hold options of other packages, and options about the continuation of a run rather than its training.
_LEFT_OUT = frozenset({"catalog", "dataset", "algorithm_options", "mode_options", "task_options", "restart"})


def command_line(config: TrainConfig) -> str:
    """``gnnloom train`` with every option that differs from its default, quoted for a shell."""
    words = ["gnnloom", "--catalog", str(Path(config.data.catalog).absolute()), "train", config.data.dataset]
    options = options_of(TrainConfig)
    for name in config.changed():
        if name in _LEFT_OUT:
            continue
        option, value, flag = options[name], config.value(name), name.replace("_", "-")
        words += [f"--{'' if value else 'no-'}{flag}"] if option.kind is bool else [f"--{flag}", option.shown(value)]
    for item in config.algorithm.algorithm_options:
        name, _, value = item.partition("=")
        words += [f"--{name.replace('_', '-')}", value]
    return shell_command(*words)
