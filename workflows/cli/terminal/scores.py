"""The figures that a task reports of several splits, in few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnloom.trainer.tasks.task import PREFIXES, Task
from gnnloom.workflows.formatting import readable


def scores_by_figure(task: Task, measured: Mapping[str, Any]) -> dict[str, str]:
    """The values of each figure on all splits, such as ``0.8856 validation, 0.8605 test``, by what it is called.

    The figure that judges runs comes first. What was not measured is left out.

    Args:
        measured: metrics by their names, such as ``test_auc``; others are ignored.
    """
    found = {}
    for figure in sorted(task.figures, key=lambda each: each is not task.judge):
        values = {prefix: measured.get(f"{prefix}_{figure.name}") for prefix in PREFIXES}
        known = {_SPLITS[prefix]: value for prefix, value in values.items() if value is not None}
        if known:
            found[figure.label] = ", ".join(f"{readable(figure.name, value)} {split}" for split, value in known.items())
    return found


_SPLITS = {"train": "training", "val": "validation", "test": "test"}
