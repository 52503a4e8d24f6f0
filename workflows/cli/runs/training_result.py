"""Prints the result of a training run, for the commands that train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnloom.trainer.tasks.task import Task
from gnnloom.workflows.cli.terminal.output import show, show_json, show_rows
from gnnloom.workflows.cli.terminal.scores import scores_by_figure
from gnnloom.workflows.formatting import baseline_rows, filtered_figures, readable

#: Entries of the result that are too large for a terminal.
_LARGE = ("bytes_between", "confusion", "per_class")
#: Prefixes of the names of scores.
_SPLITS = {"train", "val", "test"}
#: The main entries, before and after the scores, shown unless all entries are requested.
_BRIEF = ("run", "state", "mode", "algorithm", "ranks", "epochs", "loss")
_BRIEF_COST = ("inference", "epoch_seconds", "bytes_sent", "read_per_used", "peak_memory")


def show_training(result: Mapping[str, Any], task: Task | None, *, title: str) -> None:
    """Print the result of a training run, as JSON or as a table with its main figures.

    Args:
        task: the task of the run; None if it is not installed.
        title: the title of the table.
    """
    if show_json(result):
        return
    losses, baselines = result["loss"], baseline_rows(result)
    if losses:
        # A list with one loss per epoch: its range would hide whether the loss fell or rose.
        result = {**result, "loss": f"{readable('loss', losses[0])} at first, {readable('loss', losses[-1])} at last"}
    scores = [name for name in result if name.partition("_")[0] in _SPLITS]
    if task is not None and task.on_pairs:
        # Such tasks report many figures, so each figure gets one line for all splits.
        filtered = filtered_figures(result).items()
        lines = scores_by_figure(task, result) | {f"{name}, filtered": f"{value:.4g} test" for name, value in filtered}
        result = {**{name: value for name, value in result.items() if name not in scores}, **lines}
        scores = list(lines)
    # The figures are of the last epoch unless the run keeps its best checkpoint.
    epoch = () if result.get("checkpoint_epoch") == result.get("epochs") else ("checkpoint_epoch",)
    brief = (*_BRIEF, *epoch, *scores, *_BRIEF_COST)
    show(result, title=title, hide=_LARGE, brief=brief)
    if baselines:
        show_rows(baselines[0], baselines[1:])
