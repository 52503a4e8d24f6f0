"""Entry point of every rank: ``python -P -m mpi4py -m gnnloom.trainer [ACTION] CONFIG.json``, or options.

ACTION is ``predict`` or ``propagate``; without one, the ranks train.

    mpirun -n 4 python -P -m mpi4py -m gnnloom.trainer --catalog catalog --dataset cora --ranks 4 --hidden 16
    mpirun -n 4 python -P -m mpi4py -m gnnloom.trainer predict --catalog catalog --dataset cora --ranks 4 --run NAME

Ranks first compare their commands, options and versions, and do not begin if they differ. An error that all ranks know
about is reported once, by the lowest rank that has the error, and every rank exits with the error's code. A storage,
system or memory error on a single rank is reported in one line by that rank, which ends the job with the error's code.
Any other exception ends the whole job at once, with its traceback (also while modules are imported, thanks to ``-m
mpi4py``). On SIGTERM (or SIGUSR1, which MPICH's launcher forwards) a training run writes a checkpoint after the current
epoch and exits with code 75; the same command continues from there. A propagation does so after the current columns. A
prediction ends at once. ``--restart`` starts over instead. If ``$GNNLOOM_EXIT_CODE_FILE`` names a file, rank 0 writes
the exit code to this file, and all ranks exit with code 0.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence

from gnnloom.storage.disk.files import write_json
from gnnloom.storage.shared_memory import remove_abandoned
from gnnloom.trainer.comm.agreement import CollectiveError, together
from gnnloom.trainer.comm.ending import end_job, report
from gnnloom.trainer.comm.reported_error import ERROR_FOLDER
from gnnloom.trainer.comm.transports.registry import world
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.propagate_config import PropagateConfig
from gnnloom.trainer.job.arguments import parse_arguments
from gnnloom.trainer.job.rank_log import log_to_stderr, name_job, report_progress
from gnnloom.trainer.job.stop import EXIT_STOPPED, StopRequest, leave
from gnnloom.trainer.planner.forecast import record_forecast
from gnnloom.trainer.training.alike import alike_command
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from gnnloom.trainer.training.propagate import propagate


def main(arguments: Sequence[str]) -> int:
    """Run one rank; returns its exit code."""
    # First, so that a signal during loading is remembered until the end of the first epoch.
    stop = StopRequest(signal.SIGTERM, signal.SIGUSR1)
    comm = world()
    level = logging.INFO if comm.rank == 0 else logging.ERROR
    log_to_stderr(level)
    # Nobody would show the progress of a batch job.
    if comm.rank == 0 and ERROR_FOLDER in os.environ:
        report_progress()
    try:
        job = together(
            comm,
            lambda: parse_arguments(arguments),
            lambda job: alike_command(job.command, {**job.config.to_json(), "restart": job.restart}),
        )
        name_job(comm)
        # Files that killed jobs left.
        if comm.this_machine().rank == 0:
            remove_abandoned()
        if isinstance(job.config, PredictConfig):
            # A prediction has no checkpoint: it ends at once, and begins again.
            stop.release()
            result = predict(comm, job.config)
        elif isinstance(job.config, PropagateConfig):
            result = propagate(comm, job.config, stop)
        else:
            result = train(comm, job.config, stop, restart=job.restart, begun=record_forecast)
    except CollectiveError as error:
        return report(error)
    except Exception as error:  # noqa: BLE001 - the other ranks would wait forever
        end_job(comm, error)
    if comm.rank == 0 and job.result is not None:
        write_json(job.result, result)
    return EXIT_STOPPED if result["state"] == "stopped" else 0


if __name__ == "__main__":
    leave(world(), main(sys.argv[1:]))
