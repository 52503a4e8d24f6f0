"""The configuration of a training run, composed of one part per component."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any, Self

from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, STREAMS
from gnnloom.trainer.algorithms.registry import algorithms_with
from gnnloom.trainer.config.algorithm_config import AlgorithmConfig
from gnnloom.trainer.config.data_config import DataConfig
from gnnloom.trainer.config.loss_config import LossConfig
from gnnloom.trainer.config.mode_config import ModeConfig
from gnnloom.trainer.config.model_config import ModelConfig
from gnnloom.trainer.config.run_config import RunConfig
from gnnloom.trainer.config.run_name import derive_run_name
from gnnloom.trainer.config.schedule_config import ScheduleConfig
from gnnloom.trainer.config.stopping_config import StoppingConfig


# Fields come in the reverse order of the bases: the algorithm's are the first ones in --help.
@dataclass(frozen=True, kw_only=True)
class TrainConfig(
    RunConfig, StoppingConfig, LossConfig, ScheduleConfig, ModelConfig, ModeConfig, DataConfig, AlgorithmConfig
):
    """Everything that determines a training run; checked where it is built (InputError)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        needs = self.model_kind.needs
        if not needs <= self.chosen_algorithm.capabilities:
            able = ", ".join(algorithms_with(needs))
            raise InputError(f"algorithm {self.algorithm!r}: model {self.model} runs on {able} only")
        if not self.mode_kind.needs <= self.chosen_algorithm.capabilities:
            able = ", ".join(algorithms_with(self.mode_kind.needs))
            raise InputError(f"algorithm {self.algorithm!r}: mode {self.mode} runs on {able} only")
        if self.mode_kind.is_sampled and self.input_has_gradient:
            what = "train_features" if self.train_features else "skip_input_gradient"
            raise InputError(f"{what}: mode {self.mode} forms no gradient of the input features; use mode full")
        self._check_adjacency()

    def _check_adjacency(self) -> None:
        if self.adjacency == "memory":
            return
        if STREAMS not in self.chosen_algorithm.capabilities:
            able = ", ".join(algorithms_with(frozenset({STREAMS})))
            raise InputError(
                f"adjacency {self.adjacency!r}: algorithm {self.algorithm} keeps it in memory; choose {able}"
            )
        # Attention visits the edges themselves, forward and backward, and not only their products.
        if NEIGHBORS in self.model_kind.needs:
            raise InputError(f"adjacency {self.adjacency!r}: model {self.model} needs the adjacency in memory")
        if self.mode_kind.rows_in_memory:
            raise InputError(f"adjacency {self.adjacency!r}: mode {self.mode} needs the adjacency in memory")

    @property
    def streams_adjacency(self) -> bool:
        """The adjacency stays on disk, and is read for every product with it."""
        # Attention cannot read it from there.
        evaluates = self.mode_kind.rows_evaluate and NEIGHBORS not in self.model_kind.needs
        return self.adjacency == "disk" or evaluates

    @property
    def needs(self) -> frozenset[str]:
        """Capabilities that the algorithm must have for the model, the mode and the place of the adjacency."""
        streams = frozenset({STREAMS}) if self.adjacency == "disk" else frozenset[str]()
        return self.model_kind.needs | self.mode_kind.needs | streams

    @property
    def input_is_cached(self) -> bool:
        # The rows of a batch differ from those of the whole graph, and from those of every other batch.
        return super().input_is_cached and not self.mode_kind.is_sampled

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
        """
        config = replace(self, shards=shards)
        if config.run is not None:
            return config
        decides = [config.identity(), shards, config.algorithm, config.ranks, config.grid]
        return replace(config, run=derive_run_name(config.model, config.algorithm, str(config.ranks), decides))

    def identity(self) -> dict[str, Any]:
        """The fields that determine the result, and that a resumed run must share, as JSON."""
        # Free fields change how far and where a run goes but not what it computes, so resuming with others is safe.
        return {name: value for name, value in self.to_json().items() if name in self.deciding}

    @property
    def lr_follows_evaluations(self) -> bool:
        """The learning rate depends on metrics that are measured in some epochs only."""
        return self.schedule == "plateau" and self.monitor != "loss"

    @property
    def deciding(self) -> set[str]:
        """Names of the fields that determine the result."""
        decides = {field.name for field in dataclasses.fields(self) if not field.metadata["free"]}
        decides |= {"ranks"} if self.mode_kind.ranks_decide else set()
        decides |= {"mode_options"} if self.mode_options else set()
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

    @classmethod
    def of_run(cls, run: Run) -> Self:
        """The configuration that a run was made with.

        Raises:
            InputError: it is not a valid configuration; the file is named.
        """
        try:
            return cls.from_json(run.config())
        except InputError as error:
            raise InputError(f"{run.config_path}: {error}") from error
