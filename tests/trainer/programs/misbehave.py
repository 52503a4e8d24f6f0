"""A training in which one rank raises in the middle, or in which ranks report the files that they open."""

import signal
import sys

from mpi4py import MPI

from gnnloom.trainer.comm.ending import end_job
from gnnloom.trainer.comm.mpi import MpiCommunicator
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train

asked: list[int] = []


def raise_on_one_rank() -> bool:
    asked.append(1)
    if len(asked) == 3 and MPI.COMM_WORLD.rank == 1:
        raise ZeroDivisionError("rank 1 fails in epoch 2")
    return False


def trace_files() -> None:
    """Report every file below the shards that this rank opens."""

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and "/shards/" in str(arguments[0]):
            sys.stderr.write(f"OPENED {MPI.COMM_WORLD.rank} {arguments[0]}\n")

    sys.addaudithook(hook)


def main(what: str, catalog: str, dataset: str, ranks: int) -> None:
    config = TrainConfig.of(catalog=catalog, dataset=dataset, ranks=ranks, epochs=5, run=what, hidden=(4,), threads=1)
    if what == "trace":
        trace_files()
    stop = {"raise": raise_on_one_rank, "trace": lambda: False}[what]
    comm = MpiCommunicator(MPI.COMM_WORLD)
    try:
        train(comm, config, stop)
    except ZeroDivisionError as error:
        end_job(comm, error)


signal.signal(signal.SIGTERM, signal.SIG_DFL)
main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
