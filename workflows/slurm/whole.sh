#!/bin/bash
# Runs @RECIPE@ in one job: its ranks prepare as a Dask cluster, and then train.
#SBATCH --job-name=gnnloom-@NAME@
#SBATCH --nodes=@NODES@
#SBATCH --ntasks=@RANKS@
#SBATCH --cpus-per-task=@CPUS@
#SBATCH --mem-per-cpu=@MEMORY_PER_CPU@
#SBATCH --time=@TIME@
#SBATCH --requeue
#SBATCH --output=%x-%j.log
@ACCOUNT@
set -euo pipefail
cd @FOLDER@  # from where the recipe's relative paths are meant
export GNNLOOM_CATALOG=@CATALOG@
export OMP_WAIT_POLICY=PASSIVE PYTHONUNBUFFERED=1

# What is finished is kept: submit it again to go on. 75: stopped by USR1 after a checkpoint.
srun --mpi=@MPI@ --kill-on-bad-exit=1 gnnloom run @ARGUMENTS@ --cluster mpi
