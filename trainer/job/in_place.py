"""The ranks of the job to which this process belongs; see :class:`gnnloom.trainer.job.ranks.Ranks`."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import counted
from gnnloom.trainer.comm.agreement import CollectiveError, broadcast_bytes, together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.ending import end_job, report
from gnnloom.trainer.comm.transports.registry import LaunchedRank, world
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.propagate_config import PropagateConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.rank_log import name_job
from gnnloom.trainer.job.stop import (
    EXIT_STOPPED,
    STOPPED_PROPAGATION,
    StoppedError,
    StopRequest,
    interrupted_by,
    leave,
    preparing_signals,
)
from gnnloom.trainer.planner.forecast import record_forecast
from gnnloom.trainer.training.alike import alike_command
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from gnnloom.trainer.training.propagate import propagate

Result = TypeVar("Result")

_LOGGERS = ("gnnloom", "gnnloom.trainer", "gnnloom.workflows")


@contextmanager
def joined(command: str, launched: LaunchedRank, stop: StopRequest, *, exits: bool) -> Iterator[RanksInPlace]:
    """Be one of the ranks of this job inside the block; see :func:`gnnloom.trainer.job.ranks.ranks_of_job`."""
    comm = world()
    try:
        yield RanksInPlace(comm, command, launched, stop)
    except CollectiveError as error:
        if exits:
            leave(comm, report(error))
        if error.code == EXIT_STOPPED:
            raise StoppedError(str(error)) from error
        raise
    except BaseException as error:
        if exits and isinstance(error, SystemExit):
            raise
        # The other ranks do not know about the error, and would wait forever.
        end_job(comm, error)


class RanksInPlace:
    """The ranks of this job.

    Attributes:
        stop: the request to stop, which may come at any time.
    """

    def __init__(self, comm: Communicator, command: str, launched: LaunchedRank, stop: StopRequest) -> None:
        """Let the first rank log for all.

        Raises:
            CollectiveError: the launcher belongs to another MPI, which leaves every process alone.
        """
        if launched.size not in {1, comm.size}:
            raise CollectiveError(
                f"the launcher started {counted(launched.size, 'process')}, but each finds"
                f" {counted(comm.size, 'rank')}: the launcher and mpi4py belong to different MPI installations;"
                " `gnnloom doctor` shows which one mpi4py uses",
                reports=launched.rank == 0,
                code=InputError.exit_code,
            )
        self.comm, self.stop = comm, stop
        self._command, self._is_named = command, False
        self._levels = {name: logging.getLogger(name).level for name in _LOGGERS}
        self._log(self.is_first)

    @property
    def is_first(self) -> bool:
        return self.comm.rank == 0

    def number(self, wanted: int | None) -> int:
        size = self.comm.size
        if wanted not in {None, size}:
            raise InputError(
                f"--ranks {wanted}, but this MPI job has {counted(size, 'rank')}: start {counted(wanted, 'rank')}, or"
                " leave out --ranks"
            )
        return size

    def agree(
        self, action: Callable[[], Result], options: Callable[[Result], Mapping[str, Any]] | None = None
    ) -> Result:
        if options is None:
            agreed = together(self.comm, action)
        else:
            agreed = together(self.comm, action, lambda result: alike_command(self._command, options(result)))
        # Ranks with wrong commands take part only in the first agreement.
        if not self._is_named:
            name_job(self.comm)
            self._is_named = True
        return agreed

    def on_first(self, action: Callable[[], Any]) -> Any:
        said = self.agree(lambda: json.dumps(action()).encode() if self.is_first else b"")
        length = int(self.comm.gather_numbers([len(said)])[0, 0])
        # Counted separately: it is not a message of training.
        with self.comm.traffic.recording():
            return json.loads(broadcast_bytes(self.comm, said, length, 0))

    def first_before_others(self, action: Callable[[], Result]) -> Result:
        # Other commands never come here, so this one must not wait for them.
        self.agree(lambda: None, lambda _: {})
        # The other ranks sleep in the barrier while the first one works.
        made = self.agree(lambda: [action()] if self.is_first else [])
        return self.agree(lambda: made[0] if made else action())

    @contextmanager
    def working_for_all(self) -> Iterator[None]:
        self._log(True)
        with interrupted_by(self.stop, preparing_signals()):
            yield
        self._log(self.is_first)

    def _log(self, logs: bool) -> None:
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level if logs else logging.ERROR)

    def train(self, config: TrainConfig, *, restart: bool = False) -> dict[str, Any]:
        # From now on, SIGTERM asks for a checkpoint on every rank. SIGTERMs of workers have been ignored so far.
        self.stop.hear(signal.SIGTERM, signal.SIGUSR1)
        result = train(self.comm, config, self.stop, restart=restart, begun=record_forecast)
        if result["state"] == "stopped":
            again = "the same command, without --restart," if restart else "the same command"
            message = f"run {result['run']}: stopped after a checkpoint; {again} continues it"
            raise CollectiveError(message, reports=self.is_first, code=EXIT_STOPPED)
        return result

    def predict(self, config: PredictConfig) -> dict[str, Any]:
        return predict(self.comm, config)

    def propagate(self, config: PropagateConfig) -> dict[str, Any]:
        self.stop.hear(signal.SIGTERM, signal.SIGUSR1)
        result = propagate(self.comm, config, self.stop)
        if result["state"] == "stopped":
            raise CollectiveError(STOPPED_PROPAGATION, reports=self.is_first, code=EXIT_STOPPED)
        return result
