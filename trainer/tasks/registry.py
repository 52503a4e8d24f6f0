"""All tasks: gnnloom's, and tasks that installed packages announce."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import gnnloom.trainer.tasks
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.storage.errors import InputError
from gnnloom.trainer.tasks.task import Arrays, Task

#: Tasks by name, in the order of choices.
TASKS: Mapping[str, Task] = load_descriptors(gnnloom.trainer.tasks, "TASK", "gnnloom.tasks", Task)
#: Stands for the task that the vertex data suggest.
AUTO: Final = "auto"


def task_of_data(name: str, arrays: Arrays, where: Path | str) -> Task:
    """The task of a name, or for ``auto`` the first one whose array is there.

    Args:
        arrays: of the vertex data.
        where: place of the arrays, for messages.

    Raises:
        InputError: there is no such task, or its array is missing. Data without any array of ``auto`` are refused where
            they are read.
    """
    task = _task(name, lambda task: task.array in arrays)
    if name != AUTO and not task.on_pairs and task.array not in arrays:
        raise InputError(
            f"task {name}: {where} has no {task.array}, which this task predicts; choose another task, or add it with"
            " `gnnloom features` and run `gnnloom shard` again"
        )
    return task


def task_of_run(config: Mapping[str, Any], predictions: Arrays) -> Task:
    """The task of a run.

    Args:
        config: configuration of the run; without a task, or with ``auto``, the predictions say which one it was.
        predictions: arrays of the run's predictions.

    Raises:
        InputError: the task is not installed.
    """
    return _task(config.get("task", AUTO), lambda task: task.prediction in predictions)


def _task(name: str, suits: Callable[[Task], bool]) -> Task:
    if name == AUTO:
        automatic = [task for task in TASKS.values() if task.automatic]
        return next(filter(suits, automatic), automatic[0])
    if name not in TASKS:
        raise InputError(f"task {name!r}: expected one of {', '.join((AUTO, *TASKS))}")
    return TASKS[name]
