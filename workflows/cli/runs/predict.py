"""`gnnloom predict`: the classes and embeddings of all vertices, or scores of pairs, from a trained run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from gnnloom.storage import Dataset
from gnnloom.storage.option import Group, Option, options_of
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.smoothing_config import SmoothingConfig
from gnnloom.trainer.job.ranks import ranks_of_job
from gnnloom.workflows.api.train import predict_run
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import QUIET, add_options, flag_option, json_option, object_option, open_run
from gnnloom.workflows.cli.terminal.output import readable, say_understood, show, show_rows, wants_json
from gnnloom.workflows.cli.terminal.progress import shown_progress
from gnnloom.workflows.interop.scored_pairs import Wanted
from gnnloom.workflows.interop.transfer import UNKNOWN, Elsewhere

#: Figures of the ranks; there are none if the stored predictions are used.
_OF_RANKS = ("ranks", "bytes_read", "peak_memory")
#: The main entries, before and after the accuracies, which are shown unless all are asked for.
_BRIEF = ("run", "epoch", "reused", "pairs", "smooth")
_BRIEF_COST = ("ranks", "peak_memory", "path", "out")

_OPTIONS = (
    Option("run", str, "Run to predict with; NAME/RUN is the same.", group=Group.INPUT),
    Option(
        "on",
        str,
        "Another dataset to predict on, with the same features.",
        group=Group.INPUT,
        is_common=True,
        default_text="the run's",
        metavar="NAME",
    ),
    Option(
        "graph",
        str,
        "Graph to predict on.",
        group=Group.INPUT,
        default_text="that of the run, or the only one of another dataset",
        metavar="KEY",
    ),
    Option(
        "vertices",
        str,
        "Vertex data to predict with, if the graph has several.",
        group=Group.INPUT,
        metavar="KEY",
    ),
    Option(
        "unknown",
        str,
        "Vertices of another graph whose learned vectors (--embed) the run lacks; zero: they get vectors of zeros.",
        UNKNOWN[0],
        group=Group.MODEL,
        choices=UNKNOWN,
    ),
    replace(options_of(PredictConfig)["model"], group=Group.MODEL),
    replace(options_of(PredictConfig)["decoder"], group=Group.TASK),
    Option(
        "checkpoint",
        str,
        "Checkpoint to predict with; auto: the best one if the run keeps one.",
        "auto",
        group=Group.CHECKPOINTS,
        choices=("auto", "best", "last"),
    ),
    Option(
        "pairs",
        Path,
        "File with pairs to score, in any format of edges, by the ids of the source.",
        group=Group.TASK,
        is_common=True,
        metavar="FILE",
    ),
    Option(
        "top",
        int,
        "Find the K best targets of each vertex: the highest scores, where the graph has no edge yet.",
        group=Group.TASK,
        is_common=True,
        least=1,
        metavar="K",
    ),
    Option(
        "of",
        Path,
        "Text file with an id in each line: the vertices whose best targets are wanted.",
        group=Group.TASK,
        default_text="all",
        metavar="FILE",
    ),
    Option(
        "out",
        Path,
        "File for the classes: .npy in the order of the vertices, or .npz, .parquet, .csv with their ids; with --pairs"
        " or --top, for the scores of the pairs.",
        group=Group.OUTPUT,
        is_common=True,
        metavar="FILE",
    ),
    Option(
        "safe_csv",
        bool,
        "Put an apostrophe before names in a .csv that a spreadsheet takes for formulas: names that begin with = + - @,"
        " a tab or a carriage return.",
        False,
        group=Group.OUTPUT,
    ),
    Option(
        "embeddings", bool, "Keep the output of the last hidden layer too.", False, group=Group.OUTPUT, is_common=True
    ),
    Option("ranks", int, "MPI ranks.", group=Group.EXECUTION, is_common=True, least=1, default_text="the run's number"),
    Option(
        "wait_timeout",
        float,
        "Seconds that a rank waits for others before the prediction ends with a report; 0: forever.",
        group=Group.EXECUTION,
        least=0,
        default_text="the run's",
    ),
    Option(
        "evaluation_memory",
        int,
        "Memory of each rank, such as 2G, beyond which a prediction runs from disk; 0: more than half of what the"
        " machine has left.",
        group=Group.EXECUTION,
        least=0,
        is_size=True,
        default_text="the run's",
    ),
)


@click.command("predict", cls=GroupedCommand)
@click.argument("name", metavar="NAME[/RUN]")
@add_options(_OPTIONS)
@object_option("smoothing", SmoothingConfig)
@flag_option("quiet", QUIET)
@json_option
def predict_command(
    name: str,
    run: str | None,
    on: str | None,
    graph: str | None,
    vertices: str | None,
    unknown: str,
    model: str | None,
    decoder: str | None,
    checkpoint: str,
    ranks: int | None,
    out: Path | None,
    embeddings: bool,
    wait_timeout: float | None,
    evaluation_memory: int | None,
    pairs: Path | None,
    top: int | None,
    of: Path | None,
    safe_csv: bool,
    smoothing: SmoothingConfig,
    quiet: bool,
) -> None:
    """Predict the class of every vertex of dataset NAME, in the order of the vertices.

    RUN may be left out if the dataset has only one. Predictions that the checkpoint made already are kept
    and used: only what is missing is computed. In an MPI job, the ranks of the job predict: mpirun -n 4 gnnloom predict
    NAME/RUN

    A run on pairs (--task link, edge-class or edge-number) stores a vector for every vertex. --pairs scores pairs with
    these vectors in one process; --top finds targets on all ranks. The first ten are shown, --out writes all.

    --on and --graph predict on another graph than that of the training, such as tomorrow's: with the same features, and
    classes by name. The predictions are stored in the dataset of the graph, in a run with the same weights.

    --smooth stores smoothed classes in addition to the model's classes, and reports the accuracies of both; --out then
    writes the smoothed ones. Smoothing in another way replaces the smoothed classes only.

    \b
    Example:
      gnnloom predict web/demo --out predictions.npy
      gnnloom predict web/demo --embeddings --out predictions.csv
      gnnloom predict web/own --model mymodel:MyModel
      gnnloom predict web/demo --smooth correct --out smoothed.csv
      gnnloom predict web/links --pairs candidates.csv --out scores.parquet
      gnnloom predict web/links --top 10 --of users.txt --out best.csv
      gnnloom predict web/demo --on tomorrow --out tomorrow.csv
    """
    asked = {
        "model": model,
        "decoder": decoder,
        "embeddings": embeddings,
        "checkpoint": checkpoint,
        "wait_timeout": wait_timeout,
        "evaluation_memory": evaluation_memory,
        **smoothing.to_json(),
    }
    with ranks_of_job("gnnloom predict", exits=True) as here:
        wanted, elsewhere = Wanted(pairs, top, of), Elsewhere(on, graph, vertices, unknown)
        say = partial(_say, wanted) if here.is_first and not quiet else None
        opened = partial(open_run, name, run)
        with shown_progress(compiles=False) if here.is_first and not quiet else nullcontext():
            result = predict_run(here, opened, out, wanted, elsewhere, say=say, safe_csv=safe_csv, ranks=ranks, **asked)
        if here.is_first:
            title = f"predictions of run {'/'.join(result[each] for each in ('dataset', 'run') if each in result)}"
            hidden = ("first", *(_OF_RANKS if result["reused"] else ()))
            brief = (*_BRIEF, *(name for name in result if name.endswith("_accuracy")), *_BRIEF_COST)
            show(result, title=title, hide=hidden, brief=brief)
            if out is None and not wants_json():
                _show_pairs(result.get("first", []))


def _say(wanted: Wanted, dataset: Dataset, run: Run) -> None:
    """Say how the files of what is wanted of a run are read."""
    say_understood(wanted.understood(dataset, run))


def _show_pairs(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print scored pairs, with one number for each."""
    if not rows:
        return
    columns = [name for name in rows[0] if not isinstance(rows[0][name], list)]
    show_rows(columns, [[_text(name, row[name]) for name in columns] for row in rows], "the first pairs")


def _text(name: str, value: Any) -> str:
    # An id is no count: it has no separators of thousands.
    return readable(name, value) if isinstance(value, float) or value is None else str(value)
