"""The training."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from gnnloom.storage.disk.files import written_aside
from gnnloom.storage.disk.seal import seal_text
from gnnloom.storage.runs.run import SAVED_RECIPE, sole_writer
from gnnloom.storage.wording import counted
from gnnloom.trainer.job.ranks import Ranks
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.stages.stage import OnRanks, RankSettings, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class TrainStage(OnRanks):
    """Trains, if the recipe has the section."""

    name = "train"
    makes_artifact = False

    def key(self, found: RecipeFacts) -> str | None:
        return None if found.recipe.train is None else found.run.name

    def is_done(self, found: RecipeFacts, key: str) -> bool:  # noqa: ARG002 - the run's name
        return found.is_trained

    def run(self, found: RecipeFacts, ranks: Ranks, settings: RankSettings) -> None:
        # Before the training, which holds the run's lock until it ends.
        ranks.on_first(lambda: save_recipe(found))
        with settings.shown_epochs(found.run, found.config.optimization.epochs) if ranks.is_first else nullcontext():
            ranks.train(found.config, restart=found.restart)

    def needs(self, inputs: StageInputs) -> StageNeeds:
        from gnnloom.workflows.recipe.plan.training_plan import count_rank, project_config

        plan = project_config(inputs)
        return StageNeeds(
            memory=max(plan.peak_memory),
            disk=plan.written_bytes,
            scratch=0,
            seconds=None if plan.seconds is None else plan.seconds * plan.ranks,
            note="; ".join(filter(None, (counted(plan.ranks, "rank"), inputs.assumed_parts))),
            rank=count_rank(inputs, plan),
        )


class TypedTrainStage(TrainStage):
    """Trains on a graph with types; its memory is forecast once all that the training reads is stored."""

    def needs(self, inputs: StageInputs) -> StageNeeds:
        from gnnloom.workflows.recipe.plan.training_plan import typed_needs

        return typed_needs(inputs)


def save_recipe(found: RecipeFacts) -> None:
    """Write the resolved recipe into the run's folder.

    Raises:
        ExistsError: another process is writing the run.
    """
    content, saved = seal_text(found.recipe.public().to_toml()), found.run.path / SAVED_RECIPE
    # A finished run may be in a catalog that cannot be written.
    if saved.is_file() and saved.read_bytes() == content.encode():
        return
    # Under the lock, or this could replace the recipe of a training that is in progress.
    with sole_writer(found.run):
        found.run.path.mkdir(parents=True, exist_ok=True)
        with written_aside(saved, durable=True) as aside:
            aside.write_text(content, encoding="utf-8")
