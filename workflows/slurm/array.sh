#!/bin/bash
# Trains @RECIPE@ with @SEEDS@ seeds on the same shards, one task of a job array per seed.
#SBATCH --job-name=gnnloom-@NAME@-seeds
#SBATCH --array=0-@LAST_SEED@
#SBATCH --nodes=@NODES@
#SBATCH --ntasks=@RANKS@
#SBATCH --cpus-per-task=@CPUS@
#SBATCH --mem-per-cpu=@MEMORY_PER_CPU@
#SBATCH --time=@TIME@
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --output=%x-%A-%a.log
@ACCOUNT@
set -euo pipefail
cd @FOLDER@  # relative paths in the recipe start here
export GNNLOOM_CATALOG=@CATALOG@
export OMP_WAIT_POLICY=PASSIVE PYTHONUNBUFFERED=1 MALLOC_TRIM_THRESHOLD_=65536

# The seed is part of a run's name, so every task writes its own run.
# Five minutes before the time limit, the ranks receive USR1, write a checkpoint and exit with code 75.
code=0
srun --mpi=@MPI@ --cpus-per-task=@CPUS@ --kill-on-bad-exit=1 gnnloom run @ARGUMENTS@ --from train --cluster mpi \
    --set "train.seed=$SLURM_ARRAY_TASK_ID" @ARRAY_SETTINGS@ || code=$?
if [ "$code" -eq 75 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
