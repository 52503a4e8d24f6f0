"""Clusters and hooks that count what a stage does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from gnnloom.pipeline.tasks.cluster import InProcessCluster

Item = TypeVar("Item")
Result = TypeVar("Result")


class CountingCluster(InProcessCluster):
    """Counts the tasks that it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks = 0

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        self.tasks += len(items)
        return super().map(function, items)
