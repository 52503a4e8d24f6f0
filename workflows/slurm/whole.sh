#!/bin/bash
# Runs @RECIPE@ in one job: its ranks first prepare as a Dask cluster, then train.
#SBATCH --job-name=gnnloom-@NAME@
#SBATCH --nodes=@NODES@
#SBATCH --ntasks=@RANKS@
#SBATCH --time=@TIME@
#SBATCH --output=%x-%j.log
@OPTIONS@
@BEGIN@

@REPORT@

# Finished stages are skipped, and a training continues from its last checkpoint.
run_on_ranks
write_report || echo "no report was written" >&2
