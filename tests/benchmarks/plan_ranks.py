"""The ranks of bench_plan: calibrate, then train every configuration of a file, and write what epochs take.

python -m mpi4py tests/benchmarks/plan_ranks.py CONFIGURATIONS RESULT SCALE ROUNDS

The rounds go over all configurations in turn, so that a disturbance does not fall on one of them only. Configurations
with ``profile`` are trained once, and the seconds of their epochs are split by kind, in processor time too.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from epoch_figures import Clock

from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm import traffic
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.mpi import world
from gnnloom.trainer.config.continuation import run_of
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.planner.calibrate import calibrate
from gnnloom.trainer.training.loop import train


def main() -> None:
    configs = [TrainConfig.of(**content) for content in json.loads(Path(sys.argv[1]).read_text())]
    result, scale, rounds = Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    comm = world()
    # Processor time, as other programs may use the machine.
    profile = calibrate(comm, "bench", "processor", scale=scale)
    measured: list[dict[str, Any]] = [{"rounds": [], "wall": []} for _ in configs]
    for _ in range(rounds):
        for config, found in zip(configs, measured, strict=True):
            seconds, wall, found["bytes"] = _timed(comm, config.with_options(profile=False))
            found["rounds"].append(seconds)
            found["wall"].append(wall)
    for config, found in zip(configs, measured, strict=True):
        if config.run.profile:
            found["split"] = _split(comm, config)
    if comm.rank == 0:
        result.write_text(json.dumps({"profile": profile.to_json(), "measured": measured}))


def _timed(comm: Communicator, config: TrainConfig) -> tuple[float, float, int]:
    """Processor and wall seconds of a median epoch on the busiest rank, and bytes sent. Collective."""
    clock = Clock()

    def end_of_epoch() -> bool:
        clock.mark()
        return False

    found = train(comm, config, end_of_epoch, restart=True)
    figures = clock.figures()
    processor, wall = comm.gather_numbers([figures["processor"], figures["wall"]]).max(0).tolist()
    return processor, wall, found["bytes_sent"]


def _split(comm: Communicator, config: TrainConfig) -> dict[str, float]:
    """Seconds of an epoch by kind: medians over the epochs after the first, means over the ranks. Collective."""
    # The profile of a run is in wall time, which says nothing on a machine that other programs use.
    with patch.object(traffic, "time", SimpleNamespace(perf_counter=time.process_time)):
        train(comm, config, restart=True)
    comm.barrier()
    lines = [line["profile"] for line in Run(run_of(config).path).metrics()[1:]]
    names = {name for line in lines for rank in line for name in rank["seconds"]} - {"other"}
    return {
        name: statistics.median(statistics.fmean(rank["seconds"].get(name, 0.0) for rank in line) for line in lines)
        for name in sorted(names)
    }


if __name__ == "__main__":
    main()
