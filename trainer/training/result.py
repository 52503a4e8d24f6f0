"""The result of a run: what its epochs reached, and what they cost every rank."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gnnloom.storage.meters import peak_memory
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import TrafficCounts
from gnnloom.trainer.training.session import Session

#: Names of the time that communication adds to an epoch, in metrics and results: of the slowest rank, and the mean.
EXPOSED: Final = ("exposed_seconds", "mean_exposed_seconds")
#: Up to this many ranks, the result holds the bytes sent between every pair; the matrix grows with their square.
_MATRIX_RANKS: Final = 256


def describe_result(
    session: Session,
    run: Run,
    lines: Sequence[Mapping[str, Any]],
    metrics: Sequence[str],
    found: Mapping[str, Any],
    *,
    stopped: bool,
) -> dict[str, Any]:
    """What a training reached, without the costs of :func:`gather_costs`.

    Args:
        lines: of all epochs.
        metrics: names of the metrics; the first one is in the line of every epoch that was evaluated.
        found: facts about the whole course of the training.
    """
    last = lines[-1]
    evaluated: Mapping[str, Any] = next((line for line in reversed(lines) if metrics[0] in line), {})
    return {
        "run": run.name,
        "state": "stopped" if stopped else "finished",
        "algorithm": session.config.algorithm,
        "mode": session.config.mode,
        "ranks": session.comm.size,
        "grid": list(session.operator.grid.shape),
        "epochs": len(lines),
        "loss": [line["loss"] for line in lines],
        **{name: evaluated.get(name) for name in metrics},
        **found,
        "feature_norm": session.feature_norm,
        # A slow epoch, such as the first one, which loads compiled kernels, does not move the median.
        "epoch_seconds": statistics.median(line["seconds"] for line in lines),
        **{name: statistics.median(line[name] for line in lines) for name in EXPOSED},
        "bytes_sent": sum(last["bytes"].values()),
        "messages_sent": sum(last["messages"].values()),
        "bytes_by_kind": last["bytes"],
        "messages_by_kind": last["messages"],
    }


def gather_costs(session: Session, last: TrafficCounts) -> dict[str, Any]:
    """Memory, reading and traffic of every rank. Collective.

    Args:
        last: what this rank sent in the last epoch.
    """
    loaded = session.loaded
    per_rank = session.comm.gather_numbers([session.counter.bytes, peak_memory(), loaded.peak_memory, loaded.seconds])
    return {
        "bytes_read": per_rank[:, 0].astype(int).tolist(),
        "peak_memory": per_rank[:, 1].astype(int).tolist(),
        "load_peak_memory": per_rank[:, 2].astype(int).tolist(),
        "load_seconds": float(per_rank[:, 3].max()),
        **_traffic_matrix(session.comm, last),
    }


def _traffic_matrix(comm: Communicator, last: TrafficCounts) -> dict[str, Any]:
    """Bytes that rank p sent to rank q in the last epoch, as ``[p][q]``; not for too many ranks. Collective."""
    if comm.size > _MATRIX_RANKS:
        return {}
    mine = [last.bytes_to[rank] for rank in comm.members]
    return {"bytes_between": comm.gather_numbers(mine).astype(int).tolist()}
