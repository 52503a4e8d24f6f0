"""Predictions that a run has already: whether they are what is asked for, and what a command reports of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

from gnnloom.storage.errors import CorruptError, FormatError
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.continuation import predicting_checkpoint, predicting_epoch
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.smoothing_config import SmoothingConfig

logger = logging.getLogger(__name__)

#: Entry of the facts of predictions: how they are smoothed, and the accuracies before and after.
SMOOTHING: Final = "smoothing"


@dataclass(frozen=True)
class StoredPredictions:
    """The requested predictions that a run already has.

    Attributes:
        epoch: epoch after which the predictions were made that are all that is asked for; 0 if there are none.
        embeds: predictions that are made now have to contain embeddings: they are asked for, or the run has them.
        smoothing: how predictions that are made now have to be smoothed, too: as asked for, or else as the run has it.
        lacks_smoothing: the run has everything that is asked for but this smoothing.
    """

    epoch: int
    embeds: bool
    smoothing: SmoothingConfig
    lacks_smoothing: bool = False


def look_up(run: Run, config: PredictConfig) -> StoredPredictions:
    """Whether a run's predictions belong to the checkpoint and hold everything that the configuration asks for.

    Everything is read once and compared with its digests: damaged predictions are made again.

    Raises:
        InputError: the run's configuration is not valid.
    """
    _, epoch = predicting_checkpoint(run, config.checkpoint, config.epoch)
    # A model without hidden layers has no embeddings.
    wanted = config.embeddings and bool(config.trained(run).model.hidden)
    embeds, smoothing = config.embeddings, config.smoothing
    try:
        if epoch and run.has_predictions_of(epoch):
            # Results of this checkpoint stay, even if other results have to be computed again.
            embeds = embeds or "embedding" in run.predictions()
            stored = SmoothingConfig.of_facts(run.predictions().facts.get(SMOOTHING))
            smoothing = smoothing if smoothing.smooths else stored
            if run.has_predictions_of(epoch, "embedding" if wanted else None):
                run.predictions().verify()
                is_all = smoothing == stored
                return StoredPredictions(epoch if is_all else 0, embeds, smoothing, lacks_smoothing=not is_all)
    except CorruptError as error:
        logger.warning("predicting again: %s", error)
        # The damaged file may be the one that says whether there are embeddings.
        embeds = embeds or (run.predictions_path / "embedding").is_dir()
    return StoredPredictions(0, embeds, smoothing)


def drop_superseded(run: Run) -> None:
    """Remove predictions of another checkpoint than the one that predicts; called by one process.

    Only when the checkpoint that supersedes theirs is durable: however a training is killed, the predictions that a run
    has lost can be made again.
    """
    try:
        is_current = run.has_predictions_of(predicting_epoch(run))
    except (CorruptError, FormatError):
        is_current = False
    if not is_current:
        run.drop_predictions()


def summary(run: Run, epoch: int) -> dict[str, Any]:
    """The result of a prediction for which no rank had to compute anything."""
    predictions = run.predictions()
    return {
        "run": run.name,
        "state": "finished",
        "epoch": epoch,
        "embeddings": "embedding" in predictions,
        "reused": True,
        "path": str(predictions.path),
        "ranks": 0,
        "bytes_read": [],
        "peak_memory": [],
        **predictions.facts.get(SMOOTHING, {}),
    }
