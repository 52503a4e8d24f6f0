"""The prediction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.job.ranks import Ranks
from gnnloom.workflows.interop.scored_pairs import write_asked
from gnnloom.workflows.interop.transfer import Elsewhere, graph_without_reverses, moved_to, plan_transfer
from gnnloom.workflows.interop.typed_transfer import other_graph
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.sections import PredictSection
from gnnloom.workflows.recipe.stages.stage import Display, OnRanks, StageNeeds

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs


class PredictStage(OnRanks[PredictSection]):
    """Predicts, if the recipe has the section."""

    given_by = "predict"
    makes_artifact = False

    def key(self, found: RecipeFacts, options: PredictSection) -> str:
        return found.run.name

    def is_done(self, found: RecipeFacts, options: PredictSection, key: str) -> bool:
        # Predictions of an earlier training are stale until the training is done.
        where = options.elsewhere
        if where.on is not None:
            # Checked before training begins.
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
            NotFoundError: there is no such graph.
            InputError: there are several, and no choice.
        """
        return dataset.graph(where.graph)

    def run(self, found: RecipeFacts, options: PredictSection, ranks: Ranks, display: Display) -> None:
        ranks.predict(_settled(found, options, ranks)[2])

    def needs(self, inputs: StageInputs, options: PredictSection) -> StageNeeds:
        from gnnloom.trainer.training.rehearsal.projection import prediction_bytes
        from gnnloom.workflows.recipe.plan.training_plan import project_config

        how = {"embeddings": options.embeddings, "smooths": options.smoothing.smooths}
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

    def needs(self, inputs: StageInputs, options: PredictSection) -> StageNeeds:
        from gnnloom.workflows.recipe.plan.training_plan import typed_needs

        return typed_needs(inputs, predicts=True)


def write_output(found: RecipeFacts, ranks: Ranks) -> None:
    """Write the predictions to the file that the recipe names, if it names one. Collective.

    An existing file is always replaced, because it may hold the predictions of another run.
    """
    section = found.recipe.predict
    if section is not None and section.out is not None:
        write_asked(ranks, *_settled(found, section, ranks), section.wanted, Path(section.out), shown=0)


def _settled(found: RecipeFacts, section: PredictSection, ranks: Ranks) -> tuple[Dataset, Run, PredictConfig]:
    """The run that predicts, its dataset, and the prediction; makes the run if it is for another graph. Collective."""
    where, num_ranks = section.elsewhere, found.config.algorithm.ranks
    opened = moved_to(ranks, lambda: (found.dataset, found.run), where, ranks=num_ranks)

    def settle() -> tuple[Dataset, Run, PredictConfig]:
        dataset, run = opened()
        return dataset, run, _moved(found, section, dataset, run) if where else prediction(found)

    return ranks.agree(settle, lambda settled: settled[2].to_json())


def _moved(found: RecipeFacts, section: PredictSection, dataset: Dataset, run: Run) -> PredictConfig:
    """The prediction with a run that was transferred to another graph."""
    config = found.config
    code: dict[str, Any] = {name: value for name, value in config.own_code().items() if name in {"model", "decoder"}}
    asked: dict[str, Any] = {"embeddings": section.embeddings, **section.smoothing.to_json()}
    chosen = PredictConfig.of_run(dataset, run, ranks=config.algorithm.ranks, **code, **asked)
    return replace(chosen, threads=config.algorithm.threads)


def prediction(found: RecipeFacts) -> PredictConfig:
    """The prediction of a recipe, with all options that choose the shards of training."""
    section, config = found.recipe.predict or PredictSection(), found.config
    return PredictConfig.of_training(
        config,
        shards=config.data.shards,
        embeddings=section.embeddings,
        threads=config.algorithm.threads,
        **section.smoothing.to_json(),
    )
