"""The environment variables of the launchers of ranks, read without starting MPI."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.transports.registry import chosen_transport


@dataclass(frozen=True)
class LaunchedRank:
    """This process's rank among those that an MPI launcher started; rank 0 of 1 without a launcher."""

    rank: int = 0
    size: int = 1

    @classmethod
    def from_environment(cls) -> LaunchedRank:
        """Read the variables of whichever launcher started this process."""
        for rank, size in chosen_transport().variables:
            stated = os.environ.get(rank, ""), os.environ.get(size, "")
            # A single rank has nobody to agree with, so it behaves like a process without a launcher.
            if all(text.isdecimal() for text in stated) and int(stated[1]) > 1:
                return cls(*map(int, stated))
        return cls()

    def check_cluster(self, where: str) -> None:
        """Refuse to run a recipe once per rank.

        Raises:
            InputError: there are several ranks, and they are not the cluster.
        """
        if self.size > 1 and where != "mpi":
            raise InputError(f"this is one of {self.size} ranks of an MPI job: add --cluster mpi")
