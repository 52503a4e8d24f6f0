"""Trains and predicts in this process, on one rank without MPI, in all places where the launcher would start ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.continuation import OpenedRun
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.propagate_config import PropagateConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.arguments import PREDICT, PROPAGATE
from gnnloom.trainer.job.launch import HasBegun
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from gnnloom.trainer.training.propagate import propagate
from gnnloom.trainer.training.session import Session, open_session
from support.lone import LoneCommunicator
from support.thread_ranks import on_thread_ranks


class LoneLauncher:
    """Stands in for the function that starts ranks.

    Attributes:
        jobs: number of jobs that it ran.
    """

    def __init__(self) -> None:
        self.jobs = 0

    def __call__(
        self,
        action: list[str],
        content: dict[str, Any],
        ranks: int,
        threads: int,
        options: Sequence[str] = (),
        begun: HasBegun | None = None,
        unit: str = "",
    ) -> dict[str, Any]:
        del threads, begun, unit
        assert ranks == 1
        self.jobs += 1
        if action == [PREDICT]:
            return predict(LoneCommunicator(), PredictConfig.of(**content))
        if action == [PROPAGATE]:
            return propagate(LoneCommunicator(), PropagateConfig.of(**content), lambda: False)
        return train(LoneCommunicator(), TrainConfig.of(**content), restart="--restart" in options)


class ThreadLauncher(LoneLauncher):
    """Stands in for the function that starts ranks: several ranks that predict are threads."""

    def __call__(
        self, action: list[str], content: dict[str, Any], ranks: int, threads: int, *rest: Any, **more: Any
    ) -> dict[str, Any]:
        if ranks == 1:
            return super().__call__(action, content, ranks, threads, *rest, **more)
        assert action == [PREDICT]
        return on_thread_ranks(ranks, lambda comm: predict(comm, PredictConfig.of(**content)))[0]


def opened_run(config: TrainConfig) -> OpenedRun:
    """The run of a configuration, and what it reads."""
    dataset = Catalog(config.data.catalog).dataset(config.data.dataset)
    return OpenedRun.open(config, dataset, Run(dataset.run_path(config.run_name)), 0, config.algorithm.ranks)


def lone_session(config: TrainConfig) -> Session:
    """The session of the only rank of a run."""
    return open_session(LoneCommunicator(), opened_run(config), 1)


def install(patch: pytest.MonkeyPatch) -> LoneLauncher:
    """Make every launch run in this process."""
    launcher = LoneLauncher()
    patch.setattr("gnnloom.trainer.job.launch._launch", launcher)
    return launcher
