"""`gnnloom predict`: the classes and embeddings of all vertices, from a trained run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnnloom.storage import Dataset
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.job.launch import launch_prediction
from gnnloom.workflows.cli.options import json_option, open_run
from gnnloom.workflows.cli.output import show
from gnnloom.workflows.interop.export import write_predictions
from gnnloom.workflows.interop.tables import check_file
from gnnloom.workflows.run.mpi_launcher import LaunchedRank

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
    launched = LaunchedRank.from_environment()
    asked: dict[str, Any] = {"embeddings": embeddings, "checkpoint": checkpoint, "wait_timeout": wait_timeout}
    if launched.size > 1:
        result = _predict_in_place(launched, (name, run), out, {"ranks": ranks, **asked})
    else:
        dataset, opened = open_run(name, run)
        check_file(out)
        result = launch_prediction(dataset, opened.name, ranks, **asked)
        _write(dataset, opened, out)
    if launched.rank > 0:
        return  # rank 0 prints for all
    if out is not None:
        result["out"] = str(out)
    show(
        result, as_json=as_json, title=f"predictions of run {result['run']}", hide=_OF_RANKS if result["reused"] else ()
    )


def _predict_in_place(
    launched: LaunchedRank, name: tuple[str, str | None], out: Path | None, asked: dict[str, Any]
) -> dict[str, Any]:
    """Predict on the ranks of this MPI job."""
    # This import starts MPI, which only the ranks of a job may do.
    from gnnloom.workflows.run.mpi import end_job_on_error
    from gnnloom.workflows.run.mpi_training import predict_in_place

    def find() -> tuple[Dataset, Run]:
        check_file(out)
        return open_run(*name)

    with end_job_on_error():
        return predict_in_place(launched, find, lambda dataset, run: _write(dataset, run, out), **asked)


def _write(dataset: Dataset, run: Run, out: Path | None) -> None:
    if out is not None:
        write_predictions(dataset, run, out)
