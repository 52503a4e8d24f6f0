"""Trains and predicts on the ranks of the MPI job that a command was started in."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from gnnloom.storage import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.comm.agreement import CollectiveError, together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.transports.registry import world
from gnnloom.trainer.config.algorithm_config import AUTO
from gnnloom.trainer.config.continuation import configure, run_of
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.job.stop import StopRequest
from gnnloom.trainer.planner.forecast import record_forecast
from gnnloom.trainer.training.alike import alike_command
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from gnnloom.workflows.run.auto_algorithm import with_algorithm
from gnnloom.workflows.run.mpi_launcher import LaunchedRank


def train_in_place(
    launched: LaunchedRank,
    given: Mapping[str, Any],
    progress: Callable[[Run, int], AbstractContextManager[None]],
    *,
    restart: bool,
) -> dict[str, Any]:
    """Train on all ranks of this MPI job. Collective.

    Args:
        given: fields of the configuration that were given; the number of ranks is that of the job.
        progress: entered by rank 0 with the run and its number of epochs.

    Returns:
        The run's result, the same on every rank; ``state`` is ``finished`` or ``stopped``.

    Raises:
        CollectiveError: the configuration cannot be used, or asks for another number of ranks; raised on every rank.
    """
    # First, so that a signal during loading is remembered until the end of the first epoch.
    stop = StopRequest(signal.SIGTERM, signal.SIGUSR1)
    comm = _join(launched)

    asked = {**given, "restart": restart}
    size = together(
        comm, lambda: _settled_ranks(given.get("ranks"), comm.size), lambda _: alike_command("gnnloom train", asked)
    )
    fields = _with_algorithm(comm, {**given, "ranks": size})
    # Compared again: what is not given comes from the run that each rank finds.
    config = together(
        comm,
        lambda: configure(fields, restart=restart),
        lambda config: alike_command("gnnloom train", config.to_json()),
    )
    # The run's folder need not exist, but its dataset must.
    run = together(comm, lambda: run_of(config))
    with progress(run, config.epochs) if comm.rank == 0 else nullcontext():
        return train(comm, config, stop, restart=restart, begun=record_forecast)


def _with_algorithm(comm: Communicator, given: dict[str, Any]) -> dict[str, Any]:
    """The fields with the algorithm that rank 0 settles on, if it is ``auto``. Collective."""
    if given.get("algorithm") != AUTO:
        return given
    # One rank reads what the planner needs, and says why.
    settled = together(comm, lambda: with_algorithm(given) if comm.rank == 0 else {})
    names = list(ALGORITHMS)
    most = max(len(algorithm.axes) for algorithm in ALGORITHMS.values())
    # A run that exists keeps its algorithm.
    chosen = [names.index(settled["algorithm"]), *settled["grid"]] if "algorithm" in settled else [-1]
    number, *grid = comm.gather_numbers(chosen + [0] * (most + 1 - len(chosen)))[0].astype(int).tolist()
    fields = {name: value for name, value in given.items() if name != "algorithm"}
    if number < 0:
        return fields
    return {**fields, "algorithm": names[number], "grid": tuple(size for size in grid if size)}


def predict_in_place(
    launched: LaunchedRank,
    find: Callable[[], tuple[Dataset, Run]],
    write: Callable[[Dataset, Run], None],
    *,
    ranks: int | None,
    embeddings: bool,
    checkpoint: str,
    wait_timeout: float | None = None,
) -> dict[str, Any]:
    """Predict on all ranks of this MPI job. Collective.

    Args:
        find: opens the dataset and the run.
        write: writes the output of the command; called by rank 0.
        ranks: number of ranks that was asked for, if any.
        checkpoint: the checkpoint that predicts: ``auto``, ``best`` or ``last``.
        wait_timeout: seconds that a rank waits for others; by default those of the training.

    Returns:
        The summary, the same on every rank.

    Raises:
        CollectiveError: as :func:`train_in_place`.
    """
    comm = _join(launched)
    asked = {"ranks": ranks, "embeddings": embeddings, "checkpoint": checkpoint, "wait_timeout": wait_timeout}
    size = together(comm, lambda: _settled_ranks(ranks, comm.size), lambda _: alike_command("gnnloom predict", asked))
    dataset, run = together(comm, find)
    options: dict[str, Any] = {**asked, "ranks": size}
    config = together(
        comm,
        lambda: PredictConfig.of_run(dataset, run, **options),
        lambda config: alike_command("gnnloom predict", config.to_json()),
    )
    result = predict(comm, config)
    together(comm, lambda: write(dataset, run) if comm.rank == 0 else None)
    return result


def _join(launched: LaunchedRank) -> Communicator:
    """The ranks of this job; only the first one logs.

    Raises:
        CollectiveError: the launcher belongs to another MPI, which leaves every process alone.
    """
    comm = world()
    if comm.size != launched.size:
        raise CollectiveError(
            f"the launcher started {launched.size} processes, but each finds {comm.size} ranks: it belongs to another"
            " MPI than mpi4py; `gnnloom doctor` shows which one mpi4py uses",
            reports=launched.rank == 0,
            code=InputError.exit_code,
        )
    if comm.rank > 0:
        for name in ("gnnloom", "gnnloom.trainer", "gnnloom.workflows"):
            logging.getLogger(name).setLevel(logging.ERROR)
    return comm


def _settled_ranks(wanted: int | None, size: int) -> int:
    if wanted not in {None, size}:
        raise InputError(
            f"--ranks {wanted}, but this MPI job has {size} ranks: start {wanted} ranks, or leave out --ranks"
        )
    return size
