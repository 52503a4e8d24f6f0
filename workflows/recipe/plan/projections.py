"""Projects the needs of the stages of a recipe."""

from __future__ import annotations

from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs
from gnnloom.workflows.recipe.plan.typed_inputs import TypedStageInputs
from gnnloom.workflows.recipe.stages.all_stages import RecipeStages
from gnnloom.workflows.recipe.stages.stage import Projection, StageNeeds


def project_stages(requested: RecipeStages) -> list[Projection]:
    """Projected needs of each requested stage that is not done.

    Raises:
        InputError: the source cannot be read.
        BudgetError: the ingest does not fit the memory or the disk.
    """
    inputs = (TypedStageInputs if requested.found.recipe.relations else StageInputs)(requested.found)
    return [
        Projection(each, StageNeeds() if each.is_done else each.kind.needs(inputs, each.options))
        for each in requested.stages
    ]
