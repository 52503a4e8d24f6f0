"""Finds out whether a run already has the requested predictions, and summarizes them for commands."""

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
        epoch: epoch of stored predictions that answer the whole request; 0 if there are none.
        embeds: new predictions must contain embeddings, because these are requested, or the run has them.
        smoothing: smoothing of new predictions: the requested one, or else the run's existing one.
        lacks_smoothing: the run has everything that is requested except this smoothing.
    """

    epoch: int
    embeds: bool
    smoothing: SmoothingConfig
    lacks_smoothing: bool = False


def look_up(run: Run, config: PredictConfig) -> StoredPredictions:
    """Find out whether a run's predictions belong to the checkpoint and contain everything that is requested.

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
            # Results of this checkpoint are kept, even if other results must be computed again.
            embeds = embeds or "embedding" in run.predictions()
            stored = SmoothingConfig.of_facts(run.predictions().facts.get(SMOOTHING))
            smoothing = smoothing if smoothing.smooths else stored
            if run.has_predictions_of(epoch, "embedding" if wanted else None):
                run.predictions().verify()
                is_all = smoothing == stored
                return StoredPredictions(epoch if is_all else 0, embeds, smoothing, lacks_smoothing=not is_all)
    except CorruptError as error:
        logger.warning("predicting again: %s", error)
        # The damaged file may be the file that tells whether there are embeddings.
        embeds = embeds or (run.predictions_path / "embedding").is_dir()
    return StoredPredictions(0, embeds, smoothing)


def drop_superseded(run: Run) -> None:
    """Remove predictions of checkpoints other than the predicting one; called by one process.

    To be called only when the new checkpoint is durable: then a run can make lost predictions again after any kill.
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
