#!/bin/bash
# Prepares @RECIPE@: graph, vertex data, partition and shards, on a Dask cluster of this job's ranks.
#SBATCH --job-name=gnnloom-@NAME@-prepare
#SBATCH --nodes=@PREPARE_NODES@
#SBATCH --ntasks=@PREPARE_RANKS@
#SBATCH --cpus-per-task=@CPUS@
#SBATCH --mem-per-cpu=@MEMORY_PER_CPU@
#SBATCH --time=@PREPARE_TIME@
#SBATCH --output=%x-%j.log
@ACCOUNT@
set -euo pipefail
cd @FOLDER@  # from where the recipe's relative paths are meant
export GNNLOOM_CATALOG=@CATALOG@
export OMP_WAIT_POLICY=PASSIVE PYTHONUNBUFFERED=1

# One rank schedules, one runs the stages, the others work. What is finished is kept: submit it again to go on.
srun --mpi=@MPI@ --cpus-per-task=@CPUS@ --kill-on-bad-exit=1 gnnloom run @ARGUMENTS@ --until shards --cluster mpi
