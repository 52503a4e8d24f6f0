"""Which tests run in one process when several processes run them."""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadFileScheduling


class FilesTogether(LoadFileScheduling):
    """The tests of a file run in one process, as do those of all packages that extend gnnloom, which share their ranks'
    server."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "added" if PurePosixPath(file).name.startswith("test_added_") else file
