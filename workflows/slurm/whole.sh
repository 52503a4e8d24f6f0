#!/bin/bash
# Runs @RECIPE@ in one job: its ranks prepare as a Dask cluster, and then train.
#SBATCH --job-name=gnnloom-@NAME@
#SBATCH --nodes=@NODES@
#SBATCH --ntasks=@RANKS@
#SBATCH --cpus-per-task=@CPUS@
#SBATCH --mem-per-cpu=@MEMORY_PER_CPU@
#SBATCH --time=@TIME@
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --output=%x-%j.log
@ACCOUNT@
set -euo pipefail
cd @FOLDER@  # from where the recipe's relative paths are meant
export GNNLOOM_CATALOG=@CATALOG@
export OMP_WAIT_POLICY=PASSIVE PYTHONUNBUFFERED=1

# Five minutes before the end of its time the ranks get USR1; those that train write a checkpoint and leave with 75.
# What is finished is kept: submit it again to go on.
code=0
srun --mpi=@MPI@ --cpus-per-task=@CPUS@ --kill-on-bad-exit=1 gnnloom run @ARGUMENTS@ --cluster mpi || code=$?
if [ "$code" -eq 75 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
