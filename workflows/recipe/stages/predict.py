"""The prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.job.ranks import Ranks
from gnnloom.workflows.recipe.found import Found
from gnnloom.workflows.recipe.sections import PredictSection
from gnnloom.workflows.recipe.stages.stage import OnRanks, RankSettings, StageNeeds
from gnnloom.workflows.recipe.trained_run import is_predicted

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class PredictStage(OnRanks):
    """Predicts, if the recipe has the section."""

    name = "predict"
    makes_artifact = False

    def key(self, found: Found) -> str | None:
        return None if found.recipe.train is None or found.recipe.predict is None else found.run.name

    def is_done(self, found: Found, key: str) -> bool:  # noqa: ARG002 - the run's name
        # Predictions of an earlier training are stale until the training is done.
        return found.is_trained and is_predicted(found.run, found.recipe)

    def run(self, found: Found, ranks: Ranks, settings: RankSettings) -> None:  # noqa: ARG002 - shows nothing
        ranks.predict(prediction(found))

    def needs(self, inputs: StageInputs) -> StageNeeds:
        from gnnloom.trainer.training.rehearsal.projection import prediction_bytes
        from gnnloom.workflows.recipe.plan.training_plan import project_config

        section = inputs.recipe.predict or PredictSection()
        how = {"embeddings": section.embeddings, "smooths": section.smooths}
        return StageNeeds(
            memory=max(project_config(inputs).peak_memory),
            disk=prediction_bytes(inputs.shards, inputs.config, **how),
            scratch=0,
            note="disk space before compression",
        )


def prediction(found: Found) -> PredictConfig:
    """The prediction of a recipe, with all that chooses the shards of the training."""
    section, config = found.recipe.predict or PredictSection(), found.config
    return PredictConfig.of_training(
        config,
        shards=config.shards,
        embeddings=section.embeddings,
        threads=config.threads,
        **section.smoothing.to_json(),
    )
