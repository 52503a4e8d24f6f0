"""The prediction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.job.ranks import Ranks
from gnnloom.workflows.interop.transfer import Elsewhere, graph_without_reverses, plan_transfer, transferred
from gnnloom.workflows.interop.typed_transfer import other_graph
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.sections import PredictSection
from gnnloom.workflows.recipe.stages.stage import OnRanks, RankSettings, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class PredictStage(OnRanks):
    """Predicts, if the recipe has the section."""

    name = "predict"
    makes_artifact = False

    def key(self, found: RecipeFacts) -> str | None:
        return None if found.recipe.train is None or found.recipe.predict is None else found.run.name

    def is_done(self, found: RecipeFacts, key: str) -> bool:  # noqa: ARG002 - the run's name
        # Predictions of an earlier training are stale until the training is done.
        where = elsewhere(found)
        if where.on is not None:
            # Before anything is trained for it.
            with found.named_section("predict"):
                self.find_graph(Catalog(found.recipe.catalog).dataset(where.on), where)
        if not found.is_trained or (where and graph_without_reverses(found.dataset, found.run, where) is not None):
            return False
        plan = plan_transfer(found.dataset, found.run, where, ranks=found.config.algorithm.ranks) if where else None
        if plan is None:
            return found.is_predicted(found.run)
        return plan.is_done and found.is_predicted(plan.run)

    def find_graph(self, dataset: Dataset, where: Elsewhere) -> object:
        """The other graph of a recipe.

        Raises:
            NotFoundError: there is none.
            InputError: there are several, and no choice.
        """
        return dataset.graph(where.graph)

    def run(self, found: RecipeFacts, ranks: Ranks, settings: RankSettings) -> None:  # noqa: ARG002 - shows nothing
        if not elsewhere(found):
            ranks.predict(prediction(found))
            return

        def transfer() -> list[str]:
            dataset, run = predicted_run(found)
            return [str(dataset.path), run.name]

        path, name = ranks.on_first(transfer)
        ranks.predict(ranks.agree(lambda: _elsewhere(found, Dataset(Path(path)), name), PredictConfig.to_json))

    def needs(self, inputs: StageInputs) -> StageNeeds:
        from gnnloom.trainer.training.rehearsal.projection import prediction_bytes
        from gnnloom.workflows.recipe.plan.training_plan import project_config

        section = inputs.recipe.predict or PredictSection()
        how = {"embeddings": section.embeddings, "smooths": section.smoothing.smooths}
        return StageNeeds(
            memory=max(project_config(inputs).peak_memory),
            disk=prediction_bytes(inputs.shards, inputs.config.model, **how),
            scratch=0,
            note="disk space before compression",
        )


class TypedPredictStage(PredictStage):
    """Predicts on a graph with types."""

    def find_graph(self, dataset: Dataset, where: Elsewhere) -> object:
        return other_graph(dataset, where.graph, where.vertices)

    def needs(self, inputs: StageInputs) -> StageNeeds:
        from gnnloom.workflows.recipe.plan.training_plan import typed_needs

        return typed_needs(inputs, predicts=True)


def elsewhere(found: RecipeFacts) -> Elsewhere:
    """The other graph that a recipe predicts on; false if it predicts on the training graph."""
    section = found.recipe.predict or PredictSection()
    return Elsewhere(section.on, section.graph, section.vertices, section.unknown)


def predicted_run(found: RecipeFacts) -> tuple[Dataset, Run]:
    """The run that has the predictions of a recipe, with its dataset; made if it is for another graph."""
    dataset, where = found.dataset, elsewhere(found)
    return transferred(dataset, found.run, where, ranks=found.config.algorithm.ranks) if where else (dataset, found.run)


def _elsewhere(found: RecipeFacts, dataset: Dataset, name: str) -> PredictConfig:
    """The prediction with a transferred run."""
    section, config = found.recipe.predict or PredictSection(), found.config
    run = Run.open(dataset, name)
    code: dict[str, Any] = {name: value for name, value in config.own_code().items() if name in {"model", "decoder"}}
    asked: dict[str, Any] = {"embeddings": section.embeddings, **section.smoothing.to_json()}
    chosen = PredictConfig.of_run(dataset, run, ranks=config.algorithm.ranks, **code, **asked)
    return replace(chosen, threads=config.algorithm.threads)


def prediction(found: RecipeFacts) -> PredictConfig:
    """The prediction of a recipe, with all that chooses the shards of the training."""
    section, config = found.recipe.predict or PredictSection(), found.config
    return PredictConfig.of_training(
        config,
        shards=config.data.shards,
        embeddings=section.embeddings,
        threads=config.algorithm.threads,
        **section.smoothing.to_json(),
    )
