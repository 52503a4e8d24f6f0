"""Prepares a recipe again and again, killed after ever more tasks, each time by a SIGKILL, until it is done.

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
from gnnloom.workflows.recipe.stages import Request
from gnnloom.workflows.run.local import prepare


class DeadlyCluster(InProcessCluster):
    """Runs so many tasks and kills its process."""

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
    request = Request(Path(recipe), Path(catalog))
    kills = 0
    # Each child gets one task further than the last, if that one's work was kept.
    while True:
        child = os.fork()
        if child == 0:
            job = request.open()
            prepare(job.recipe, job.plan, DeadlyCluster(1))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            break
        kills += 1
    sys.stdout.write(f"{kills} {os.WEXITSTATUS(status)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
