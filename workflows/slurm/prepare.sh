#!/bin/bash
# Prepares @RECIPE@ (graph, vertex data, partition and shards) on a Dask cluster of this job's ranks.
#SBATCH --job-name=gnnloom-@NAME@-prepare
#SBATCH --nodes=@PREPARE_NODES@
#SBATCH --ntasks=@PREPARE_RANKS@
#SBATCH --cpus-per-task=@CPUS@
#SBATCH --mem-per-cpu=@MEMORY_PER_CPU@
#SBATCH --time=@PREPARE_TIME@
#SBATCH --output=%x-%j.log
@ACCOUNT@
set -euo pipefail
cd @FOLDER@  # relative paths in the recipe start here
export GNNLOOM_CATALOG=@CATALOG@
export OMP_WAIT_POLICY=PASSIVE PYTHONUNBUFFERED=1

# One rank is the scheduler, one the client, the others are workers. Finished tasks are kept:
# submit the job again to continue.
srun --mpi=@MPI@ --cpus-per-task=@CPUS@ --kill-on-bad-exit=1 gnnloom run @ARGUMENTS@ --until shards --cluster mpi
