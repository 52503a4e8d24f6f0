#!/bin/bash
# Trains @RECIPE@ with @SEEDS@ seeds on the same shards, one task of a job array per seed.
#SBATCH --job-name=gnnloom-@NAME@-seeds
#SBATCH --array=0-@LAST_SEED@
#SBATCH --nodes=@NODES@
#SBATCH --ntasks=@RANKS@
#SBATCH --time=@TIME@
#SBATCH --output=%x-%A-%a.log
@OPTIONS@
@BEGIN@

@REPORT@

# The seed is part of a run's name, so every task writes its own run.
seed=(--set "train.seed=$SLURM_ARRAY_TASK_ID" @ARRAY_SETTINGS@)
run_on_ranks --from @BEGINS@ "${seed[@]}"
write_report "${seed[@]}" || echo "no report was written" >&2
