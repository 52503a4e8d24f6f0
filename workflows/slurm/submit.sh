#!/bin/bash
# Submits @RECIPE@ as two jobs of different sizes; the second starts once the first has made the shards.
set -euo pipefail
cd "$(dirname "$0")"
prepared=$(sbatch --parsable prepare.sh)
sbatch --dependency="afterok:$prepared" --kill-on-invalid-dep=yes train.sh
