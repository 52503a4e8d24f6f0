"""The run that a recipe trains: its name, its progress, and whether the name belongs to another training."""

from __future__ import annotations

from gnnloom.storage.catalog import Catalog
from gnnloom.storage.errors import ExistsError, IncompleteError, NotFoundError
from gnnloom.storage.runs.checkpoint import checkpoint_epochs
from gnnloom.storage.runs.run import Run
from gnnloom.storage.wording import counted
from gnnloom.trainer.config.continuation import find_named, predicting_epoch
from gnnloom.trainer.config.optimization_config import ended_early
from gnnloom.trainer.config.smoothing_config import SmoothingConfig
from gnnloom.trainer.config.stored_predictions import SMOOTHING
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.recipe.recipe import Recipe


def run_of(recipe: Recipe, config: TrainConfig) -> Run:
    """Return the run of a training, which may not exist yet."""
    return Run(recipe.dataset_path / "runs" / config.run_name)


def name_run(recipe: Recipe, shards: str) -> TrainConfig:
    """Return the training on these shards, with a run name that depends on everything that decides its result.

    Training for more epochs continues the existing run. Training for fewer epochs than the run has becomes a separate
    run, so that the longer one stays as it is.
    """
    named = _named_as_stored(recipe, recipe.training.named_with_shards(shards), shards)
    if recipe.training.run.name is not None or _trained_epochs(run_of(recipe, named)) <= named.optimization.epochs:
        return named
    return named.with_options(run=f"{named.run.name}-{named.optimization.epochs}")


def _named_as_stored(recipe: Recipe, config: TrainConfig, shards: str) -> TrainConfig:
    """Return the training with the name of its run, also if the dataset was imported under another name since."""
    try:
        dataset = Catalog(recipe.catalog).dataset(recipe.dataset.name)
    except NotFoundError:
        return config
    named = find_named(dataset, recipe.training, lambda each: each.named_with_shards(shards).run_name)
    return config.with_options(run=named)


def refuse_other_run(recipe: Recipe, config: TrainConfig) -> None:
    """Check that a run of this name, if there is one, is the same training of the same graph.

    Raises:
        ExistsError: it is a different training, or has more epochs.
    """
    run = run_of(recipe, config)
    if not run.exists:
        return
    before, epochs = TrainConfig.of_run(run), _trained_epochs(run)
    changes = config.changes_since(before)
    # Shards are named first: other shards mean another graph, whatever else has changed.
    if before.data.shards != config.data.shards:
        differs = "made from other shards"
    elif changes:
        differs = f"made with {', '.join(changes)}"
    elif epochs > config.optimization.epochs:
        differs = f"trained for {counted(epochs, 'epoch')} already, more than {config.optimization.epochs}"
    else:
        return
    raise ExistsError(
        f"{run.path}: this run was {differs}; choose another name with --set train.run=..., or --restart to start it"
        " over"
    )


def _trained_epochs(run: Run) -> int:
    return max(checkpoint_epochs(run.checkpoints), default=0)


def is_trained(run: Run, config: TrainConfig) -> bool:
    """Return whether the run has finished exactly this training on these shards."""
    if not run.exists:
        return False
    try:
        before, result = TrainConfig.of_run(run), run.result()
    except IncompleteError:
        return False
    is_long_enough = result["epochs"] == config.optimization.epochs or ended_early(result, config.stopping.patience)
    # Changes leave out the epochs: a run of fewer epochs is the same training, to be continued.
    return not config.changes_since(before) and before.data.shards == config.data.shards and is_long_enough


def is_predicted(run: Run, recipe: Recipe) -> bool:
    """Return whether the run has the predictions that the recipe asks for, made from the checkpoint that predicts."""
    try:
        predictions = run.predictions()
    except NotFoundError:
        return False
    predict = recipe.predict
    if predict is None or predictions.facts.get("epoch") != predicting_epoch(run):
        return False
    if predict.smoothing.smooths and SmoothingConfig.of_facts(predictions.facts.get(SMOOTHING)) != predict.smoothing:
        return False
    # A model without hidden layers has no embeddings to store.
    return "embedding" in predictions or not (predict.embeddings and recipe.training.model.hidden)
