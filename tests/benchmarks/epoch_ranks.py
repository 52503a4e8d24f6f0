"""One rank in bench_epoch and bench_algorithms: trains as configured by JSON, and prints what its epochs take.

python -m mpi4py tests/benchmarks/epoch_ranks.py CONFIGURATION

Figures are those of the slowest or largest rank, but ``processor`` and ``total_peak`` are of all ranks together;
``busiest`` is the processor time of the rank with the most.
"""

from __future__ import annotations

import json
import sys

from epoch_figures import Clock, report

from gnnloom.trainer.comm.mpi import world
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train


def main() -> None:
    content, clock, comm = json.loads(sys.argv[1]), Clock(), world()

    def end_of_epoch() -> bool:
        # Called once in every epoch, at the same place, so two calls are one epoch apart.
        clock.mark()
        return False

    result = train(comm, TrainConfig.of(**content), end_of_epoch, restart=True)
    figures = clock.figures()
    rows = comm.gather_numbers(list(figures.values()))
    found = dict(zip(figures, rows.max(0).tolist(), strict=True))
    if comm.rank == 0:
        # Of all ranks together, as with one process of the other side.
        together = {"processor": rows[:, 1].sum(), "total_peak": rows[:, 3].sum(), "loss": result["loss"]}
        report({**found, "busiest": found["processor"], **together, "result": result})


if __name__ == "__main__":
    main()
