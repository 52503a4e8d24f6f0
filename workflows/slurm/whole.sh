#!/bin/bash
# Runs @RECIPE@ in one job: its ranks first prepare as a Dask cluster, then train.
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
cd @FOLDER@  # relative paths in the recipe start here
export GNNLOOM_CATALOG=@CATALOG@
export OMP_WAIT_POLICY=PASSIVE PYTHONUNBUFFERED=1

# Five minutes before the time limit, the ranks receive USR1; if they train, they write a checkpoint and exit with code
# 75. Finished stages are kept: submit the job again to continue.
code=0
srun --mpi=@MPI@ --cpus-per-task=@CPUS@ --kill-on-bad-exit=1 gnnloom run @ARGUMENTS@ --cluster mpi || code=$?
if [ "$code" -eq 75 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
