"""The options of a prediction: options of the command, and keywords of the API."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnnloom.storage.option import Group, Option, option, option_field, options_of
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.smoothing_config import SmoothingConfig
from gnnloom.workflows.interop.scored_pairs import PairRequest
from gnnloom.workflows.interop.tables import SAFE_CSV
from gnnloom.workflows.interop.transfer import Elsewhere


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """Options of a prediction except the graph, the pairs and the smoothing, which have their own dataclasses."""

    model: str | None = option_field(replace(options_of(PredictConfig)["model"], group=Group.MODEL))
    decoder: str | None = option_field(replace(options_of(PredictConfig)["decoder"], group=Group.TASK))
    checkpoint: str = option(
        "auto",
        "Checkpoint to predict with; auto: the best one if the run keeps one.",
        group=Group.CHECKPOINTS,
        choices=("auto", "best", "last"),
    )
    out: Path | None = option(  # noqa: RUF009 - an option is immutable
        None,
        "File to write: .npy with the classes in the order of the vertices, or .npz, .parquet or .csv with ids and"
        " classes; with --pairs or --top, the scores of the pairs.",
        kind=Path,
        group=Group.OUTPUT,
        is_common=True,
        metavar="FILE",
    )
    safe_csv: bool = option_field(SAFE_CSV)
    embeddings: bool = option(
        False, "Also store the output of the last hidden layer.", group=Group.OUTPUT, is_common=True
    )
    ranks: int | None = option(
        None,
        "Number of MPI ranks.",
        kind=int,
        group=Group.EXECUTION,
        is_common=True,
        least=1,
        default_text="the run's number",
    )
    wait_timeout: float | None = option(
        None,
        "Seconds that a rank waits for other ranks before the command fails with a report; 0: forever.",
        kind=float,
        group=Group.EXECUTION,
        least=0,
        default_text="the run's",
    )
    evaluation_memory: int | None = option(
        None,
        "Memory per rank, such as 2G, above which a prediction runs from disk; 0: half of the free memory of the"
        " machine.",
        kind=int,
        group=Group.EXECUTION,
        least=0,
        is_size=True,
        default_text="the run's",
    )

    @property
    def of_ranks(self) -> dict[str, Any]:
        """The options that the ranks get, by the arguments of ``PredictConfig.of_run``."""
        return {name: value for name, value in vars(self).items() if name not in {"out", "safe_csv"}}


def predict_options() -> dict[str, Option]:
    """The keywords of a prediction by name; the dataset of another graph is an argument."""
    kinds = (PredictOptions, Elsewhere, PairRequest, SmoothingConfig)
    return {name: each for kind in kinds for name, each in options_of(kind).items() if name != "on"}
