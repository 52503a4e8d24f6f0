"""What MPI launchers tell the processes that they start, told without MPI."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gnnloom.storage.errors import InputError

#: Rank and size by MPICH and its kin, Open MPI, and Slurm's `srun`; a batch script has no size of a step of many.
_VARIABLES = (
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


@dataclass(frozen=True)
class Launched:
    """This process among those that a launcher started together; alone where none did."""

    rank: int = 0
    size: int = 1

    @classmethod
    def here(cls) -> Launched:
        """What the environment says."""
        for rank, size in _VARIABLES:
            stated = os.environ.get(rank, ""), os.environ.get(size, "")
            if all(text.isdecimal() for text in stated) and int(stated[1]) > 1:
                return cls(*map(int, stated))
        return cls()

    def check_cluster(self, where: str) -> None:
        """Refuse to run a recipe once per rank.

        Raises:
            InputError: there are several ranks, and the cluster is not they.
        """
        if self.size > 1 and where != "mpi":
            raise InputError(f"this is one of {self.size} ranks of an MPI job: add --cluster mpi")
