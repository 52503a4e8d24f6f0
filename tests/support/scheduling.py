"""Which tests run in one process when several processes run them."""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadFileScheduling


class FilesTogether(LoadFileScheduling):
    """Keeps the tests of a file in one process, and those of all packages that extend gnnloom, which share a server."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "added" if PurePosixPath(file).name.startswith("test_added_") else file
