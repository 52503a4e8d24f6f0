#!/bin/bash
# Trains @RECIPE@ on existing shards: submit it to follow the job that prepares them.
#SBATCH --job-name=gnnloom-@NAME@-train
#SBATCH --nodes=@NODES@
#SBATCH --ntasks=@RANKS@
#SBATCH --time=@TIME@
#SBATCH --output=%x-%j.log
@OPTIONS@
@BEGIN@

@REPORT@

# The training continues from its last checkpoint.
run_on_ranks --from @BEGINS@
write_report || echo "no report was written" >&2
