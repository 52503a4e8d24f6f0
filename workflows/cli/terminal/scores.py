"""Formats the figures that a task reports for several splits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnloom.trainer.tasks.task import PREFIXES, Task
from gnnloom.workflows.formatting import noted, readable


def scores_by_figure(task: Task, measured: Mapping[str, Any]) -> dict[str, str]:
    """The values of each figure on all splits, such as ``0.8856 validation, 0.8605 test``, by its label.

    The main figure of runs comes first. Figures that were not measured are left out.

    Args:
        measured: metrics by their names, such as ``test_auc``, and ``notes`` about them; others are ignored.
    """
    found = {}
    for figure in sorted(task.figures, key=lambda each: each is not task.judge):
        values = {prefix: measured.get(f"{prefix}_{figure.name}") for prefix in PREFIXES}
        known = {prefix: value for prefix, value in values.items() if value is not None}
        notes = {prefix: noted(measured, f"{prefix}_{figure.name}") for prefix in known}
        # A note about all splits is written once, to keep lines short.
        shared = next(iter(notes.values())) if len(set(notes.values())) == 1 else ""
        each = [
            f"{readable(figure.name, value)}{'' if shared else notes[prefix]} {_SPLITS[prefix]}"
            for prefix, value in known.items()
        ]
        if known:
            found[figure.label] = ", ".join(each) + shared
    return found


_SPLITS = {"train": "training", "val": "validation", "test": "test"}
