"""Writes the record of a training run: its machine and duration, metrics, profile and result."""

from __future__ import annotations

import logging
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import torch

from gnnloom.storage.meters import peak_memory
from gnnloom.storage.runs.figures import shown_epoch, shown_figures
from gnnloom.storage.runs.provenance import begin_session, end_session
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import GEMM, SAMPLING, SPMM, WAITING, Kind, TrafficCounts
from gnnloom.trainer.config.train_config import TrainConfig, command_line
from gnnloom.trainer.loggers.logger import LogContext, MetricsLog
from gnnloom.trainer.loggers.registry import LOGGERS
from gnnloom.trainer.training.alike import own_version
from gnnloom.trainer.training.session import Session

logger = logging.getLogger(__name__)


class RunLog:
    """The open logs of one run, on rank 0; empty on all others."""

    def __init__(self) -> None:
        self._open: dict[str, MetricsLog] = {}

    @classmethod
    def open(cls, names: Iterable[str], context: LogContext) -> RunLog:
        """Open logs by the names of their loggers."""
        opened = cls()
        for name in names:
            opened._guarded(name, partial(opened._begin, name, context))
        return opened

    def _begin(self, name: str, context: LogContext) -> None:
        self._open[name] = LOGGERS[name].open(context)

    def write(self, line: Mapping[str, Any]) -> None:
        """Log a line of the metrics; tables in it become one figure per entry."""
        if self._open:
            epoch, figures = shown_epoch(line), _figures(line)
            for name, log in list(self._open.items()):
                self._guarded(name, partial(log.write, epoch, figures))

    def close(self, state: str) -> None:
        """End all logs; see :meth:`MetricsLog.close`."""
        for name, log in list(self._open.items()):
            self._guarded(name, partial(log.close, state))
        self._open.clear()

    def _guarded(self, name: str, act: Callable[[], None]) -> None:
        """Call one logger, and drop it with a warning if it fails."""
        try:
            act()
        # Any exception of another program: a lost connection must not end a run of a week.
        except Exception as error:  # noqa: BLE001
            self._open.pop(name, None)
            logger.warning("--log %s failed and is left out from now on: %s: %s", name, type(error).__name__, error)


def _figures(line: Mapping[str, Any]) -> dict[str, float]:
    figures = list(shown_figures(line))
    by_kind = {name for name, kind, _ in figures if kind}
    return {f"{name}/{kind or 'total'}" if name in by_kind else name: number for name, kind, number in figures}


@contextmanager
def recorded(run: Run, config: TrainConfig, first_epoch: int, rank: int) -> Iterator[RunLog]:
    """Record a session inside the block; ranks other than 0 record nothing.

    Args:
        first_epoch: epoch at which the run begins or resumes.

    Yields:
        The log of the metrics.
    """
    names = config.run.log if rank == 0 else ()
    if rank == 0:
        begin_session(run.path, _describe(config), first_epoch)
    started, state = time.monotonic(), "failed"
    log = RunLog.open(names, LogContext(config.data.dataset, run.name, run.path, config.to_json(), first_epoch))
    try:
        yield log
        # Only a finished run has a result.
        state = "finished" if run.is_finished else "stopped"
    finally:
        log.close(state)
        if rank == 0:
            end_session(run.path, {"seconds": time.monotonic() - started, "state": state})


def _describe(config: TrainConfig) -> dict[str, Any]:
    return {
        "started": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "host": platform.node(),
        "platform": platform.platform(),
        "version": own_version(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "command": command_line(config),
    }


#: Names of the time that communication adds to an epoch, in metrics and results: for the slowest rank, and the mean.
EXPOSED: Final = ("exposed_seconds", "mean_exposed_seconds")
#: Up to this many ranks, the result holds the bytes sent between every pair.
_MATRIX_RANKS: Final = 256


def describe_result(
    session: Session,
    run: Run,
    lines: Sequence[Mapping[str, Any]],
    found: Mapping[str, Any],
    *,
    stopped: bool,
) -> dict[str, Any]:
    """Describe the result of a training run, without the costs of :func:`gather_costs`.

    Args:
        lines: metrics of all epochs.
        found: metrics of the checkpoint that the result describes, and facts about the course of the training.
    """
    last = lines[-1]
    return {
        "run": run.name,
        "state": "stopped" if stopped else "finished",
        "algorithm": session.config.algorithm.name,
        "mode": session.config.mode.name,
        "ranks": session.comm.size,
        "grid": list(session.operator.grid.shape),
        "epochs": len(lines),
        "loss": [line["loss"] for line in lines],
        **found,
        "feature_norm": session.share.inputs.norm,
        **session.model.inference_facts,
        **({"notes": notes} if (notes := session.objective.notes) else {}),
        # A slow epoch, such as the first one, which loads compiled kernels, does not move the median.
        "epoch_seconds": statistics.median(line["seconds"] for line in lines),
        **{name: statistics.median(line[name] for line in lines) for name in EXPOSED},
        **_read_per_used(lines),
        "bytes_sent": sum(last["bytes"].values()),
        "messages_sent": sum(last["messages"].values()),
        "bytes_by_kind": last["bytes"],
        "messages_by_kind": last["messages"],
    }


def _read_per_used(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Ratio of bytes read from devices to bytes of features used in batches; empty if features are not on disk."""
    used = sum(line.get("bytes_used", 0) for line in lines)
    return {"read_per_used": sum(line.get("bytes_from_device", 0) for line in lines) / used} if used else {}


def gather_costs(session: Session, last: TrafficCounts) -> dict[str, Any]:
    """Memory, reading and traffic of every rank. Collective.

    Args:
        last: bytes and messages that this rank sent in the last epoch.
    """
    comm = session.comm
    mine = [session.opened.counter.bytes, peak_memory(), session.load_memory, session.load_seconds]
    per_rank = comm.gather_numbers(mine)
    # The matrix grows with the square of the number of ranks.
    sent = [] if comm.size > _MATRIX_RANKS else [last.bytes_to[rank] for rank in comm.members]
    return {
        "bytes_read": per_rank[:, 0].astype(int).tolist(),
        "peak_memory": per_rank[:, 1].astype(int).tolist(),
        "load_peak_memory": per_rank[:, 2].astype(int).tolist(),
        "load_seconds": float(per_rank[:, 3].max()),
        # Bytes that rank p sent to rank q in the last epoch, as [p][q].
        **({"bytes_between": comm.gather_numbers(sent).astype(int).tolist()} if sent else {}),
    }


# All ranks send their figures in this order, with 0 for activities that they did not time.
_NAMES = (SPMM, GEMM, SAMPLING, WAITING, *Kind)


def gather_profile(comm: Communicator, counts: TrafficCounts, epoch_seconds: float) -> list[dict[str, Any]]:
    """The profile of every rank, the same list on all ranks. Collective.

    Returns:
        For each rank, ``seconds`` by name: local products, ``sampling`` (waiting for a batch), kinds of communication,
        ``waiting`` for late ranks, and ``other``, the rest of the epoch; ``exposed``, seconds in which the rank only
        waited for messages, already included; then ``bytes`` and ``messages`` sent, by kind.
    """
    mine = [counts.seconds.get(name, 0.0) for name in _NAMES]
    mine += [float(count[kind]) for count in (counts.bytes, counts.messages) for kind in Kind]
    everyones = comm.gather_numbers([epoch_seconds, counts.exposed, *mine]).tolist()
    return [_rank_profile(*figures) for figures in everyones]


def _rank_profile(epoch_seconds: float, exposed: float, *figures: float) -> dict[str, Any]:
    seconds, sent = figures[: len(_NAMES)], [int(figure) for figure in figures[len(_NAMES) :]]
    named = {str(name): value for name, value in zip(_NAMES, seconds, strict=True) if value}
    num_bytes, messages = sent[: len(Kind)], sent[len(Kind) :]
    return {
        # Timer noise can make the named times exceed the epoch's.
        "seconds": {**named, "other": max(0.0, epoch_seconds - sum(seconds))},
        "exposed": exposed,
        "bytes": {kind.value: count for kind, count in zip(Kind, num_bytes, strict=True) if count},
        "messages": {kind.value: count for kind, count in zip(Kind, messages, strict=True) if count},
    }
