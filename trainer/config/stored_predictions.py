"""Predictions that a run has already: whether they are what is asked for, and what a command reports of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from gnnloom.storage.errors import CorruptError
from gnnloom.storage.runs.checkpoint import checkpoint_epochs
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stored:
    """Predictions of a run, made after an epoch."""

    run: Run
    epoch: int

    def summary(self) -> dict[str, Any]:
        """The result of a prediction for which no rank had to compute anything."""
        predictions = self.run.predictions()
        return {
            "run": self.run.name,
            "state": "finished",
            "epoch": self.epoch,
            "embeddings": "embedding" in predictions,
            "reused": True,
            "path": str(predictions.path),
            "ranks": 0,
            "bytes_read": [],
            "peak_memory": [],
        }


def find_stored(run: Run, config: PredictConfig) -> Stored | None:
    """The run's predictions, if they belong to the checkpoint and hold everything that the configuration asks for.

    Everything is read once and compared with its digests: damaged predictions are made again.
    """
    epoch = config.epoch if config.epoch is not None else max(checkpoint_epochs(run.checkpoints), default=0)
    # A model without hidden layers has no embeddings.
    embeds = config.embeddings and bool(TrainConfig.of_run(run).hidden)
    try:
        if not epoch or not run.has_predictions_of(epoch, "embedding" if embeds else None):
            return None
        run.predictions().verify()
    except CorruptError as error:
        logger.warning("predicting again: %s", error)
        return None
    return Stored(run, epoch)
