"""The ranks of bench_plan: calibrate, then train every configuration of a file, and write what epochs take.

python -m mpi4py tests/benchmarks/plan_ranks.py CONFIGURATIONS RESULT SCALE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from epoch_figures import Clock

from gnnloom.storage.meters import peak_memory
from gnnloom.trainer.comm.mpi import world
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.planner.calibrate import calibrate
from gnnloom.trainer.training.loop import train


def main() -> None:
    configs, result, scale = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]), float(sys.argv[3])
    comm = world()
    # Processor time, as other programs may use the machine.
    profile = calibrate(comm, "bench", "processor", scale=scale)
    measured = []
    for content in configs:
        clock = Clock()

        def end_of_epoch(clock: Clock = clock) -> bool:
            clock.mark()
            return False

        found = train(comm, TrainConfig.from_json(content), end_of_epoch, restart=True)
        slowest = comm.gather_numbers([clock.figures()["processor"], peak_memory()]).max(0).tolist()
        measured.append({"seconds": slowest[0], "peak": slowest[1], "bytes": found["bytes_sent"]})
    if comm.rank == 0:
        result.write_text(json.dumps({"profile": profile.to_json(), "measured": measured}))


if __name__ == "__main__":
    main()
