"""Prepares a recipe repeatedly, killed by SIGKILL after every task, until it is done.

python killed_run.py RECIPE CATALOG
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.workflows.recipe.request import Request
from gnnloom.workflows.run.stages import prepare

#: More tasks than any step needs before it keeps something.
MOST_TASKS = 16


class DeadlyCluster(InProcessCluster):
    """Runs a number of tasks, then kills its process."""

    def __init__(self, tasks: int) -> None:
        super().__init__()
        self.left = tasks

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        for item in items:
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1
            yield function(item)


def finished(catalog: Path) -> int:
    """How many tasks are recorded, with so much for each complete artifact that its commit counts, too."""
    tasks = len(list(catalog.glob("*/*/*/.work/parts/[!.]*.json")))
    return tasks + 1000 * len(list(catalog.glob("*/*/*/manifest.json")))


def main(recipe: str, catalog: str) -> None:
    request = Request(Path(recipe), Path(catalog))
    kills, tasks, kept = 0, 1, 0
    while True:
        child = os.fork()
        if child == 0:
            prepare(request.check(), DeadlyCluster(tasks))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            break
        kills += 1
        # Some steps run several tasks and keep nothing before the last: such a step gets one more each time.
        before, kept = kept, finished(Path(catalog))
        tasks = 1 if kept > before else tasks + 1
        if tasks > MOST_TASKS:
            sys.exit("finished tasks are not kept")
    sys.stdout.write(f"{kills} {os.WEXITSTATUS(status)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
