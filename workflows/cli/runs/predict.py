"""`gnnloom predict`: the classes and embeddings of all vertices, or scores of pairs, from a trained run."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import click

from gnnloom.storage import Dataset
from gnnloom.storage.option import Group, Option
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.smoothing_config import SmoothingConfig
from gnnloom.trainer.job.ranks import ranks_of_job
from gnnloom.workflows.api.options.predict_options import PredictOptions
from gnnloom.workflows.api.train import predict_run
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import (
    QUIET,
    click_option,
    flag_option,
    json_option,
    object_option,
    open_run,
)
from gnnloom.workflows.cli.terminal.output import say_understood, show, show_rows, wants_json
from gnnloom.workflows.cli.terminal.progress import shown_progress
from gnnloom.workflows.formatting import readable
from gnnloom.workflows.interop.scored_pairs import PairRequest
from gnnloom.workflows.interop.transfer import Elsewhere

#: Figures of the ranks; absent if stored predictions are used.
_OF_RANKS = ("ranks", "bytes_read", "peak_memory")
#: The main entries, before and after the accuracies, shown unless all entries are requested.
_BRIEF = ("run", "epoch", "reused", "pairs", "smooth")
_BRIEF_COST = ("ranks", "peak_memory", "path", "out")


@click.command("predict", cls=GroupedCommand)
@click.argument("name", metavar="NAME[/RUN]")
@click_option(Option("run", str, "Run to predict with; NAME/RUN is the same.", group=Group.INPUT))
@object_option("elsewhere", Elsewhere)
@object_option("options", PredictOptions)
@object_option("wanted", PairRequest)
@object_option("smoothing", SmoothingConfig)
@flag_option("quiet", QUIET)
@json_option
def predict_command(
    name: str,
    run: str | None,
    elsewhere: Elsewhere,
    options: PredictOptions,
    wanted: PairRequest,
    smoothing: SmoothingConfig,
    quiet: bool,
) -> None:
    """Predict the class of every vertex of dataset NAME, in the order of the vertices.

    RUN is optional if the dataset has only one run. Stored predictions of the same checkpoint are reused, and only
    missing ones are computed. In an MPI job, the ranks of the job predict: mpirun -n 4 gnnloom predict NAME/RUN

    A run on pairs (--task link, edge-class or edge-number) stores a vector for every vertex. --pairs scores pairs with
    these vectors in one process; --top finds targets on all ranks. Both show the first ten pairs; --out writes all.

    --on and --graph predict on a graph other than the training graph, such as tomorrow's. It must have the same
    features; classes are matched by name. The predictions are stored in the dataset of that graph, in a run with the
    same weights.

    --smooth stores smoothed classes in addition to the model's classes, and reports the accuracies of both; --out then
    writes the smoothed classes. Another choice of --smooth replaces only the smoothed classes.

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
    with ranks_of_job("gnnloom predict", exits=True) as here:
        is_shown, opened = here.is_first and not quiet, partial(open_run, name, run)

        def say(dataset: Dataset, run: Run) -> None:
            say_understood(wanted.understood(dataset, run))

        with shown_progress(compiles=False) if is_shown else nullcontext():
            how = options, smoothing.to_json(), wanted, elsewhere
            result = predict_run(here, opened, *how, say=say if is_shown else None)
        if here.is_first:
            title = f"predictions of run {'/'.join(result[each] for each in ('dataset', 'run') if each in result)}"
            hidden = ("first", *(_OF_RANKS if result["reused"] else ()))
            brief = (*_BRIEF, *(name for name in result if name.endswith("_accuracy")), *_BRIEF_COST)
            show(result, title=title, hide=hidden, brief=brief)
            if options.out is None and not wants_json() and (rows := result.get("first")):
                # One number for each pair.
                columns = [name for name, value in rows[0].items() if not isinstance(value, list)]
                show_rows(columns, [[_text(name, row[name]) for name in columns] for row in rows], "the first pairs")


def _text(name: str, value: Any) -> str:
    # An id is not a count: it has no thousands separators.
    return readable(name, value) if isinstance(value, float) or value is None else str(value)
