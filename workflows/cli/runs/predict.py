"""`gnnloom predict`: the classes and embeddings of all vertices, from a trained run."""

from __future__ import annotations

from pathlib import Path

import click

from gnnloom.trainer.job.ranks import ranks_of_job
from gnnloom.workflows.api.train import predict_run
from gnnloom.workflows.cli.terminal.options import json_option, open_run
from gnnloom.workflows.cli.terminal.output import show

#: Figures of the ranks; there are none if the stored predictions are used.
_OF_RANKS = ("ranks", "bytes_read", "peak_memory")


@click.command("predict")
@click.argument("name", metavar="NAME[/RUN]")
@click.option("--run", default=None, help="Run to predict with; NAME/RUN is the same.")
@click.option(
    "--checkpoint",
    type=click.Choice(["auto", "best", "last"]),
    default="auto",
    show_default=True,
    help="Checkpoint to predict with; auto: the best one if the run keeps one.",
)
@click.option("--ranks", type=click.IntRange(min=1), default=None, help="MPI ranks.  [default: those of the run]")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="File for the classes: .npy in the order of the vertices, or .npz, .parquet, .csv with their ids.",
)
@click.option("--embeddings", is_flag=True, help="Keep the output of the last hidden layer too.")
@click.option(
    "--wait-timeout",
    type=click.FloatRange(min=0),
    default=None,
    help="Seconds that a rank waits for others before the prediction ends with a report; 0: forever."
    "  [default: that of the run]",
)
@json_option
def predict_command(
    name: str,
    run: str | None,
    checkpoint: str,
    ranks: int | None,
    out: Path | None,
    embeddings: bool,
    wait_timeout: float | None,
    as_json: bool,
) -> None:
    """Predict the class of every vertex of dataset NAME, in the order of the vertices.

    RUN may be left out if the dataset has only one. Predictions that the checkpoint made already are kept
    and used: only what is missing is computed. In an MPI job, the ranks of the job predict: mpirun -n 4 gnnloom predict
    NAME/RUN

    \b
    Example:
      gnnloom predict web/demo --out predictions.npy
      gnnloom predict web/demo --embeddings --out predictions.csv
    """
    asked = {"embeddings": embeddings, "checkpoint": checkpoint, "wait_timeout": wait_timeout}
    with ranks_of_job("gnnloom predict", exits=True) as here:
        result = predict_run(here, lambda: open_run(name, run), out, ranks=ranks, **asked)
        if here.is_first:
            title = f"predictions of run {result['run']}"
            show(result, as_json=as_json, title=title, hide=_OF_RANKS if result["reused"] else ())
