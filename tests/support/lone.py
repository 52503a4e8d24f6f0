"""A communicator of a single process, without a transport."""

from __future__ import annotations

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.unconnected import UnconnectedRank


class LoneCommunicator(UnconnectedRank):
    """The only rank of its group, and of all groups that it forms."""

    def __init__(self) -> None:
        super().__init__(0, 1)

    def group(self, color: int, key: int, size: int | None = None) -> Communicator:
        return self
