"""A cluster that runs every task twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from gnnloom.pipeline.tasks.cluster import InProcessCluster

Item = TypeVar("Item")
Result = TypeVar("Result")


class TwiceCluster(InProcessCluster):
    """Runs every task twice, as a cluster does with one whose worker died at its end."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        for item in items:
            function(item)
            yield function(item)
