"""Propagated values: products of the adjacency with the features."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from gnnloom.storage.wording import counted
from gnnloom.trainer.config.propagate_config import PropagateConfig
from gnnloom.trainer.job.ranks import Ranks
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.stages.stage import Display, OnRanks, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs

_PLACES = MappingProxyType({"disk": "on disk", "memory": "in memory"})


class PropagatedStage(OnRanks[PropagateConfig]):
    """Propagates on the row shards, if the recipe has a number of steps."""

    given_by = "propagation"

    def key(self, found: RecipeFacts, options: PropagateConfig) -> str:
        return options.key(found.keys["shards"], found.inputs)

    def run(self, found: RecipeFacts, options: PropagateConfig, ranks: Ranks, display: Display) -> None:
        scratch = None if found.cluster.scratch is None else str(found.cluster.scratch)
        ranks.propagate(replace(options, shards=found.keys["shards"], scratch=scratch))

    def needs(self, inputs: StageInputs, options: PropagateConfig) -> StageNeeds:
        plan = inputs.propagation
        if plan is None:
            return StageNeeds(note="features not read yet")
        found = plan.described()
        at_a_time, passes, place = (found[name] for name in ("columns_at_a_time", "passes", "adjacency"))
        note = f"{counted(at_a_time, 'column')} at a time in {counted(passes, 'pass')}, adjacency {_PLACES[place]}"
        return StageNeeds(
            memory=found["peak_memory"],
            disk=found["bytes_written"],
            scratch=found["temporary_bytes"],
            note="; ".join(filter(None, (note, inputs.assumed_parts))),
        )
