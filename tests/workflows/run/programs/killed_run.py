"""Prepares a recipe repeatedly, killed by SIGKILL after every task, until it is done.

python killed_run.py RECIPE CATALOG
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.workflows.recipe.request import RecipeRequest
from gnnloom.workflows.run.run_recipe import prepare


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


def main(recipe: str, catalog: str) -> None:
    request = RecipeRequest(Path(recipe), Path(catalog))
    # What tasks import is imported here once, rather than by every child.
    with tempfile.TemporaryDirectory() as folder:
        prepare(RecipeRequest(Path(recipe), Path(folder)).check(), InProcessCluster())
    kills = 0
    # Each child finishes one more task than the last, if finished tasks are kept.
    while True:
        child = os.fork()
        if child == 0:
            prepare(request.check(), DeadlyCluster(1))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            break
        kills += 1
    sys.stdout.write(f"{kills} {os.WEXITSTATUS(status)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
