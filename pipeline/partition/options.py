"""All partitioners, and the options of the partition stage: settings checked against the abilities of the method."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from gnnloom.pipeline.partition import methods
from gnnloom.pipeline.partition.partitioner import Partitioner
from gnnloom.pipeline.partition.settings import (
    AUTO,
    BATCH_RATE,
    EXCHANGES,
    NATIVE_METHOD,
    QUALITY_METHOD,
    PartitionSettings,
)
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import artifact_key
from gnnloom.storage.option import Group, option, parse_named
from gnnloom.storage.samplers.kind import BATCHES

#: Descriptors by the value of ``--method``, in the order of choices.
METHODS = load_descriptors(methods, "PARTITIONER", "gnnloom.partitioners", Partitioner)
#: Models that some method offers, in the order in which the methods name them.
MODELS = tuple(dict.fromkeys(model for method in METHODS.values() for model in method.models))
#: Names of all presets of all methods.
PRESETS = tuple(sorted({name for method in METHODS.values() for name in method.preset_names if name}))

_option = partial(option, group=Group.PARTITION)


def _default_models() -> str:
    """The default of ``model`` for help: the default of most methods, and the exceptions."""
    usual = MODELS[0]
    others = [f"{name}: {method.models[0]}" for name, method in METHODS.items() if method.models[0] != usual]
    return "; ".join([usual, *others])


@dataclass(frozen=True)
class PartitionOptions(PartitionSettings):
    """Settings of a partition, with the defaults of the method, and checked against its abilities.

    Raises:
        InputError: a value is out of range, or the method does not offer it.
    """

    method: str = _option(
        "",
        "Partitioner to use instead of the choice of --quality; `gnnloom partition --help-all` describes each one.",
        is_common=True,
        choices=tuple(METHODS),
    )
    model: str = _option(
        "",
        "Communication model whose cut the method minimizes.",
        choices=MODELS,
        default_text=_default_models(),
    )
    preset: str = _option("", "Preset of the method.", choices=PRESETS, default_text="the method's first")
    quality: str = _option(
        "",
        "Trade-off between quality and time; decides, with the graph, which method runs.",
        is_common=True,
        choices=METHODS[QUALITY_METHOD].preset_names,
        default_text=METHODS[QUALITY_METHOD].preset_names[0],
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._settle_method()
        method = self.partitioner
        if not self.model:
            object.__setattr__(self, "model", method.models[0])
        if not self.preset:
            object.__setattr__(self, "preset", method.preset_names[0])
        if self.model not in method.models:
            raise InputError(f"model {self.model!r}: method {self.method} offers {', '.join(method.models)}")
        if self.preset not in method.preset_names:
            offers = f"offers {', '.join(method.preset_names)}" if method.preset_names[0] else "has none"
            raise InputError(f"preset {self.preset!r}: method {self.method} {offers}")
        object.__setattr__(self, "quality", self.preset if self.method == QUALITY_METHOD else "")
        self._check_meaning()
        # Only a check here: the field keeps the texts.
        own_options(self)

    def _settle_method(self) -> None:
        """Translate ``quality`` to a method and its preset, and fill in the method if none is given.

        Raises:
            InputError: the quality and another method, preset or model are given.
        """
        if self.method and not self.quality:
            return
        chooser = METHODS[QUALITY_METHOD]
        if not self.quality:
            offers = self.model in {"", *chooser.models} and self.preset in {"", *chooser.preset_names}
            object.__setattr__(self, "method", QUALITY_METHOD if offers else NATIVE_METHOD)
            return
        given = self.method if self.method not in {"", QUALITY_METHOD} else self.preset
        if given not in {"", self.quality}:
            raise InputError(
                f"quality {self.quality}: chooses the method and its preset; leave out {given}, or the quality"
            )
        object.__setattr__(self, "method", QUALITY_METHOD)
        object.__setattr__(self, "preset", self.quality)

    @property
    def partitioner(self) -> Partitioner:
        """The descriptor of the method."""
        return METHODS[self.method]

    def _check_meaning(self) -> None:
        """Refuse options that would change nothing: they would only name a second artifact with the same content."""
        weighs_directions = self.partitioner.weighs_directions and self.model != "graph"
        if self.directions == "both" and not weighs_directions:
            raise InputError(
                f"directions both: method {self.method} with model {self.model} ignores directions; leave it out"
            )
        if self.cover_passes and self.exchange != EXCHANGES[1]:
            raise InputError(
                f"cover_passes={self.cover_passes}: lowers the volume of exchange {EXCHANGES[1]} only; choose this"
                " exchange, or leave it out"
            )
        if self.model != "stochastic" and (self.batches, self.batch_rate) != (BATCHES[0], BATCH_RATE):
            raise InputError(
                f"batches {self.batches}, batch_rate={self.batch_rate}: model {self.model} ignores batches; choose"
                " model stochastic, or leave them out"
            )

    def check_graph(self, graph: Graph | TypedGraph) -> None:
        """Raise InputError if an option means nothing for this graph.

        Raises:
            NotFoundError: the graph has no type whose vertices are to be shared evenly, or held by every rank.
        """
        if isinstance(graph, TypedGraph):
            if self.balance and not graph.type(self.balance).count:
                raise InputError(f"balance {self.balance}: the type has no vertices")
            for name in self.replicate if self.replicate != (AUTO,) else ():
                graph.type(name)
            if self.reverse and self.directions == "both":
                raise InputError("directions both: both are the same with reverse; leave out one option")
            return
        for name in ("balance", "reverse", "replicate"):
            if getattr(self, name):
                raise InputError(f"{name}: {graph.artifact.path} is a graph without types; leave it out")
        if self.directions == "both" and graph.symmetric:
            raise InputError("directions both: the graph is undirected, so both are the same; leave it out")

    def for_method(self, method: str) -> PartitionOptions:
        """The same options for another method, without options that only some methods have."""
        return PartitionOptions(
            self.parts,
            method,
            self.imbalance,
            self.seed,
            time_limit=self.time_limit,
            threads=self.threads,
            weights=self.weights,
            exchange=self.exchange,
            cover_passes=self.cover_passes,
            balance=self.balance,
            reverse=self.reverse,
            replicate=self.replicate,
            memory_limit=self.memory_limit,
        )

    def parameters(self, memory: int) -> dict[str, Any]:
        """Parameters that decide the partition's bytes.

        Args:
            memory: bytes that a worker may use; an entry only if the method's parts depend on it.
        """
        names = ("parts", "method", "imbalance", "seed", "model", "preset", "weights", "directions")
        parameters: dict[str, Any] = {name: getattr(self, name) for name in names}
        # Only graphs with types have the first ones, and only a counted exchange is named: other keys stay the same.
        named = ("balance", "reverse", "replicate", "cover_passes")
        parameters |= {name: value for name in named if (value := getattr(self, name))}
        if self.exchange != EXCHANGES[0]:
            parameters["exchange"] = self.exchange
        if self.model == "stochastic":
            parameters |= {"batches": self.batches, "batch_rate": self.batch_rate}
        preset = next(preset for preset in self.partitioner.presets if preset.name == self.preset)
        if preset.revision:
            parameters["revision"] = preset.revision
        # The memory decides when coarsening ends, and so which parts come out.
        if self.partitioner.depends_on_memory:
            parameters["memory"] = memory
        known = self.partitioner.options
        own = {name: value for name, value in own_options(self).items() if value != known[name].default}
        return parameters | ({"method_options": own} if own else {})


def own_options(settings: PartitionSettings) -> dict[str, Any]:
    """The options of the method's own by name, with defaults filled in.

    Raises:
        InputError: the method has no such option, or a value is not allowed.
    """
    known = METHODS[settings.method].options
    given = parse_named(
        "method_options", settings.method_options, known, f"none: method {settings.method} has no options of its own"
    )
    return {name: option.default for name, option in known.items()} | given


def partition_key(graph_key: str, options: PartitionOptions, memory: int) -> str:
    """The key of the artifact that :func:`partition_graph` makes or finds.

    Args:
        memory: bytes that a worker may use; part of the key only if the method's parts depend on it.
    """
    return artifact_key("partition", options.parameters(memory), {"graph": graph_key})
