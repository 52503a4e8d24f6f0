"""The forecast of a training, which its run keeps to be compared with what is measured."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from gnnloom.storage.errors import GnnloomError, InputError
from gnnloom.trainer.planner.candidates import fits, plan_of
from gnnloom.trainer.planner.profile import LOCAL, open_profile
from gnnloom.trainer.planner.stored import situation_of
from gnnloom.trainer.training.rehearsal.projection import process_memory, with_drawn_options
from gnnloom.trainer.training.start import Begun

logger = logging.getLogger(__name__)


def record_forecast(begun: Begun) -> None:
    """Store the forecast of a training with its run; called by rank 0. Reads manifests.

    A model or an algorithm that the planner does not know has none, nor has a training whose graph or partition is
    gone: that is logged, and the training goes on.
    """
    run = begun.opened.run
    try:
        run.write_forecast(_forecast(begun))
    except GnnloomError as error:
        logger.info("run %s: no forecast: %s", run.name, error)


def _forecast(begun: Begun) -> dict[str, Any]:
    """The forecast as JSON: that of the training's plan, and the profile that its times come from.

    Epochs of sampled modes depend on the batches that are drawn: their forecast has the memory only.
    """
    dataset, shards = begun.opened.dataset, begun.opened.shards.shards
    profile = open_profile(dataset.path.parent, LOCAL)
    config = with_drawn_options(begun.opened.config, dataset, shards.artifact)
    if begun.memory is None:
        raise InputError("its memory is not known")
    memory = process_memory(config) + begun.memory
    fitting = fits(memory, profile.memory_per_rank)
    if config.mode_kind.is_sampled:
        content: dict[str, Any] = {
            "algorithm": config.algorithm,
            "mode": config.mode,
            "ranks": config.ranks,
            "precision": config.precision,
            "peak_memory": memory,
            "fits": fitting,
        }
    else:
        graph = shards.artifact.inputs.get("graph")
        situation = situation_of(dataset, graph, begun.num_training, config, config.embed)
        plan = plan_of(config, situation, profile, shards.artifact.inputs.get("partition", ""))
        content = replace(plan, peak_memory=memory, fits=fitting).to_json()
    return {**content, "profile": profile.name, "clock": profile.clock}
