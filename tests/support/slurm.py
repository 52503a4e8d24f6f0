"""Stand-ins for Slurm's commands, for tests of the batch scripts."""

from __future__ import annotations

from pathlib import Path

from gnnloom.trainer.comm.transports.mpi import find_mpiexec


def write_slurm(folder: Path) -> Path:
    """Write an ``sbatch`` that runs a script at once, and an ``srun`` that starts its tasks by MPI."""
    folder.mkdir()
    tasks = r"""$(sed -n 's/^#SBATCH --ntasks=//p' "$script")"""
    programs = {
        "sbatch": f'for script; do :; done\nSLURM_JOB_ID=1 SLURM_NTASKS={tasks} bash "$script" >&2 || exit 1\necho 1',
        # Without the number of the job, by which MPICH's launcher would know Slurm.
        "srun": (
            'while [[ "$1" == -* ]]; do shift; done\n'
            f'exec env -u SLURM_JOB_ID "{find_mpiexec()}" -n "$SLURM_NTASKS" "$@"'
        ),
    }
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    return folder
