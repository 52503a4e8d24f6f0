"""The run itself: its name, seed, evaluations and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from gnnloom.storage.catalog import check_name
from gnnloom.trainer.config.fields import Config, option
from gnnloom.trainer.loggers.registry import LOGGERS


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """The name of a run, its seed, and what it writes."""

    seed: int = option(0, "Seed of the initial weights and of dropout", least=0)
    eval_every: int = option(10, "Epochs between evaluations; 0: only at the end", free=True, least=0)
    final_eval: bool = option(True, "Evaluate after the last epoch even if it is not due", free=True)
    checkpoint_every: int = option(
        0, "Epochs between checkpoints; 0: one every ten minutes, and at the end", free=True, least=0
    )
    keep: int = option(2, "Number of latest checkpoints to keep", free=True, least=1)
    run: str | None = option(None, "Name of the run; derived from the parameters by default", free=True)
    log: tuple[str, ...] = option((), f"Also log the metrics to some of {', '.join(LOGGERS)}", free=True)
    save_embeddings: bool = option(False, "Predict after training and keep the last hidden layer too", free=True)
    wait_timeout: float = option(
        600.0,
        "Seconds that a rank waits for others before the run ends with a report; 0: forever",
        free=True,
        least=0,
    )
    profile: bool = option(
        False, "Add a time profile of every rank to the metrics; costs a barrier per message", free=True
    )

    @property
    def evaluates(self) -> bool:
        """The run measures its metrics at least once."""
        return self.eval_every > 0 or self.final_eval

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.run is not None:
            check_name(self.run, "run")
