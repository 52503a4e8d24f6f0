"""The forecast of a training run, shown in its plan and stored with the run for comparison with measurements."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from gnnloom.storage.errors import GnnloomError, InputError
from gnnloom.trainer.config.continuation import OpenedRun
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.planner.candidates import Plan, fits, plan_of
from gnnloom.trainer.planner.profile import LOCAL, MachineProfile, open_profile
from gnnloom.trainer.planner.stored import situation_of
from gnnloom.trainer.training.rehearsal.projection import (
    TrainProjection,
    opened_run,
    process_memory,
    with_drawn_options,
)
from gnnloom.trainer.training.start import Begun

logger = logging.getLogger(__name__)


def record_forecast(begun: Begun) -> None:
    """Store the forecast of a training run; called by rank 0. Reads manifests.

    There is no forecast for a model or an algorithm that the planner does not know, or if the graph or the partition is
        gone: this is logged, and training continues.
    """
    run = begun.opened.run
    try:
        run.write_forecast(_forecast(begun))
    except GnnloomError as error:
        logger.info("run %s: no forecast: %s", run.name, error)


def _forecast(begun: Begun) -> dict[str, Any]:
    """The forecast as JSON: the forecast of the run's plan, and the profile that its times come from.

    Epochs of sampled modes depend on the drawn batches, so their forecast has only the memory.
    """
    opened = begun.opened
    profile = open_profile(opened.dataset.path.parent, LOCAL)
    config = with_drawn_options(opened.config, opened.dataset, opened.shards.shards.artifact)
    if begun.memory is None:
        raise InputError("its memory is unknown")
    memory = process_memory(config) + begun.memory
    fitting = fits(memory, profile.memory_per_rank)
    if config.mode.kind.is_sampled:
        content: dict[str, Any] = {
            "algorithm": config.algorithm.name,
            "mode": config.mode.name,
            "ranks": config.algorithm.ranks,
            "precision": config.model.precision,
            "peak_memory": memory,
            "fits": fitting,
        }
    else:
        content = replace(_plan(opened, profile, begun.num_training), peak_memory=memory, fits=fitting).to_json()
    return {**content, "profile": profile.name, "clock": profile.clock}


def with_planned_seconds(projection: TrainProjection, config: TrainConfig) -> tuple[TrainProjection, str]:
    """A projection with the planner's times if there is no earlier run, and a note about them, which may be empty.

    Raises:
        NotFoundError: the dataset or its shards do not exist.
    """
    if projection.epoch_seconds is not None:
        return projection, ""
    if config.mode.kind.is_sampled:
        note = f"mode {config.mode.name}: only an earlier run shows the time of an epoch, which depends on its batches"
        return projection, note
    opened = opened_run(config)
    profile = open_profile(opened.dataset.path.parent, LOCAL)
    try:
        epoch = _plan(opened, profile).cost.total
    except GnnloomError as error:
        return projection, f"the time of an epoch is unknown: {error}"
    left = projection.epochs - projection.first_epoch
    seconds_from = f"profile {profile.name}"
    return replace(projection, epoch_seconds=epoch, seconds=left * epoch, seconds_from=seconds_from), profile.note


def _plan(opened: OpenedRun, profile: MachineProfile, num_training: int | None = None) -> Plan:
    """The planner's forecast of a training run on the whole graph.

    Args:
        num_training: number of labeled training vertices, if already known.
    """
    config, dataset, inputs = opened.config, opened.dataset, opened.shards.shards.artifact.inputs
    situation = situation_of(dataset, inputs.get("graph"), num_training, config)
    return plan_of(config, situation, profile, inputs.get("partition", ""))
