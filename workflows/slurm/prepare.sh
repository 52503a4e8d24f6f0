#!/bin/bash
# Prepares @RECIPE@ (graph, vertex data, partition and shards) on a Dask cluster of this job's ranks.
#SBATCH --job-name=gnnloom-@NAME@-prepare
#SBATCH --nodes=@PREPARE_NODES@
#SBATCH --ntasks=@PREPARE_RANKS@
#SBATCH --time=@PREPARE_TIME@
#SBATCH --output=%x-%j.log
@OPTIONS@
@BEGIN@

# One rank is the scheduler, one the client, the others are workers. Finished tasks are kept when the job begins again.
run_on_ranks --until @PREPARED@
