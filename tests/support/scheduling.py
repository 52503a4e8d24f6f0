"""Chooses the tests that run in one process when several processes run tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

_ROOT = Path(__file__).parents[2]


class FilesTogether(LoadFileScheduling):
    """Keeps the tests of a file in one process, and those that share a slow start.

    Packages that extend gnnloom have a server for ranks of their own, and importing PyG takes seconds.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _shared(super()._split_scope(nodeid))


@cache
def _shared(file: str) -> str:
    path = _ROOT / file
    if path.name.startswith("test_added_"):
        return "added"
    return "PyG" if "torch_geometric" in path.read_text() else file
