"""The training."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from gnnloom.storage.disk.files import written_aside
from gnnloom.storage.disk.seal import seal_text
from gnnloom.storage.runs.run import SAVED_RECIPE, sole_writer
from gnnloom.storage.wording import counted
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.ranks import Ranks
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.stages.stage import Display, OnRanks, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class TrainStage(OnRanks[TrainConfig]):
    """Trains, if the recipe has the section."""

    makes_artifact = False

    def options(self, found: RecipeFacts) -> TrainConfig | None:
        return None if found.recipe.train is None else found.config

    def key(self, found: RecipeFacts, options: TrainConfig) -> str:
        return found.run.name

    def is_done(self, found: RecipeFacts, options: TrainConfig, key: str) -> bool:
        return found.is_trained

    def run(self, found: RecipeFacts, options: TrainConfig, ranks: Ranks, display: Display) -> None:
        # Before the training, which holds the run's lock until it ends.
        ranks.on_first(lambda: save_recipe(found))
        with display.epochs(found.run, options.optimization.epochs) if ranks.is_first else nullcontext():
            ranks.train(options, restart=found.restart)

    def needs(self, inputs: StageInputs, options: TrainConfig) -> StageNeeds:
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
    """Trains on a graph with types; its memory is forecast once all its inputs are stored."""

    def needs(self, inputs: StageInputs, options: TrainConfig) -> StageNeeds:
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
    # Under the lock; otherwise this could replace the recipe of a run in progress.
    with sole_writer(found.run):
        found.run.path.mkdir(parents=True, exist_ok=True)
        with written_aside(saved, durable=True) as aside:
            aside.write_text(content, encoding="utf-8")
