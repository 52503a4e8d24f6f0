"""Reports how every rank spends an epoch."""

from __future__ import annotations

from typing import Any

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import GEMM, SAMPLING, SPMM, WAITING, Kind, TrafficCounts

# All ranks send their figures in this order, with 0 for what they did not time.
_NAMES = (SPMM, GEMM, SAMPLING, WAITING, *Kind)


def gather_profile(comm: Communicator, counts: TrafficCounts, epoch_seconds: float) -> list[dict[str, Any]]:
    """The profile of every rank, the same list on all ranks. Collective.

    Returns:
        For each rank, ``seconds`` by name: local products, ``sampling`` (waiting for a batch), kinds of communication,
        ``waiting`` for late ranks, and ``other``, the rest of the epoch; ``exposed``, seconds in which the rank only
        waited for messages, which are part of those; then ``bytes`` and ``messages`` sent, by kind.
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
