"""Runs a function on several ranks that are threads of this process, which starts no program."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from gnnloom.trainer.comm.communicator import Communicator
from support import threads

Result = TypeVar("Result")


def on_thread_ranks(ranks: int, function: Callable[[Communicator], Result]) -> list[Result]:
    """What a function returns on every rank, in their order; raises what it raises on any rank."""
    group = threads.Group(ranks)
    ended: queue.SimpleQueue[tuple[int, Result | None, BaseException | None]] = queue.SimpleQueue()

    def run(rank: int) -> None:
        threads.HERE.rank = rank, group
        try:
            with threads.TURN:
                ended.put((rank, function(threads.join()), None))
        except BaseException as error:  # noqa: BLE001 - raised below
            ended.put((rank, None, error))

    for rank in range(ranks):
        # The others wait for a rank that has failed as long as this process runs.
        threading.Thread(target=run, args=(rank,), daemon=True).start()
    found = {}
    for _ in range(ranks):
        rank, result, error = ended.get()
        if error is not None:
            raise error
        found[rank] = result
    return [found[rank] for rank in range(ranks)]  # type: ignore[misc]
