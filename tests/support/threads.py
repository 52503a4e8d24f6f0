"""A transport of another package: the ranks of a job are threads of one process, and one thread runs at a time.

A rank that waits for others lets one of them run. So they may share what belongs to a process, such as torch's global
generator, as long as none waits while it uses it.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NoReturn

from gnnloom.trainer.comm.transports.transport import Transport

if TYPE_CHECKING:
    from gnnloom.trainer.comm.communicator import Communicator

#: Held by the rank that runs.
TURN = threading.Condition()
HERE = threading.local()


class Group:
    """What the ranks of a group share: messages by sender and receiver, and what each gave to every collective."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.messages: dict[tuple[int, int], deque[Any]] = {}
        self.given: list[dict[int, Any]] = []
        self.groups: dict[tuple[int, ...], Group] = {}


def join() -> Communicator:
    """All ranks, for the thread that calls."""
    import numpy as np
    import torch

    from gnnloom.trainer.comm.communicator import Machine, Reduction
    from gnnloom.trainer.comm.traffic import Traffic

    reductions: dict[Reduction, Callable[[Any, Any], Any]] = {
        Reduction.SUM: torch.add,
        Reduction.MAX: torch.maximum,
        Reduction.MIN: torch.minimum,
    }

    class Threads:
        """See the protocol; collectives end when they begin."""

        def __init__(self, group: Group, rank: int, members: Sequence[int], traffic: Traffic) -> None:
            self.shared, self.rank, self.members, self.traffic = group, rank, members, traffic
            self.size, self.calls = group.size, 0

        def exchanged(self, mine: Any) -> list[Any]:
            """What every rank gave to this collective, the same number of calls after the start."""
            given, self.calls = self.shared.given, self.calls + 1
            while len(given) < self.calls:
                given.append({})
            found = given[self.calls - 1]
            found[self.rank] = mine.clone() if isinstance(mine, torch.Tensor) else mine
            TURN.notify_all()
            TURN.wait_for(lambda: len(found) == self.size)
            return [found[rank] for rank in range(self.size)]

        def group(self, color: int, key: int, size: int | None = None) -> Communicator:
            everyones = self.exchanged((color, key))
            ranks = sorted((key, rank) for rank, (each, key) in enumerate(everyones) if each == color)
            inside = tuple(rank for _, rank in ranks)
            shared = self.shared.groups.setdefault((self.calls, *inside), Group(len(inside)))
            members = [self.members[rank] for rank in inside]
            return Threads(shared, inside.index(self.rank), members, self.traffic)

        def this_machine(self) -> Machine:
            return Machine(self.rank, self.size, len(os.sched_getaffinity(0)))

        def send(self, tensor: Any, destination: int, kind: Any) -> list[Any]:
            if tensor.numel():
                box = self.shared.messages.setdefault((self.rank, destination), deque())
                box.append(tensor.detach().clone())
                TURN.notify_all()
            return []

        def receive(self, tensor: Any, source: int) -> list[Any]:
            return [(tensor, source)] if tensor.numel() else []

        def wait(self, requests: Sequence[Any]) -> None:
            for tensor, source in requests:
                box = self.shared.messages.setdefault((source, self.rank), deque())
                TURN.wait_for(partial(len, box))
                tensor.detach().copy_(box.popleft())

        def progress(self, requests: Sequence[Any]) -> None:
            """Messages need no help."""

        def all_reduce(self, tensor: Any, kind: Any, operation: Reduction = Reduction.SUM) -> None:
            if self.size > 1:
                tensor.copy_(reduce(reductions[operation], self.exchanged(tensor)))

        def begin_all_reduce(self, tensor: Any, kind: Any, operation: Reduction = Reduction.SUM) -> list[Any]:
            self.all_reduce(tensor, kind, operation)
            return []

        def finish(self, requests: Sequence[Any], kind: Any) -> None:
            """Collectives are complete already."""

        def broadcast(self, tensor: Any, root: int, kind: Any) -> None:
            tensor.copy_(self.exchanged(tensor)[root])

        def begin_broadcast(self, tensor: Any, root: int, kind: Any) -> list[Any]:
            self.broadcast(tensor, root, kind)
            return []

        def all_gather(self, block: Any, sizes: Sequence[int], kind: Any, out: Any = None) -> Any:
            if self.size == 1:
                return block
            whole = torch.cat(self.exchanged(block))
            return whole if out is None else out.copy_(whole)

        def reduce_scatter(self, whole: Any, sizes: Sequence[int], kind: Any, out: Any = None) -> Any:
            if self.size == 1:
                return whole
            mine = torch.split(sum(self.exchanged(whole)), list(sizes))[self.rank]
            return mine if out is None else out.copy_(mine)

        def gather_numbers(self, numbers: Sequence[float]) -> Any:
            return np.array(self.exchanged(list(numbers)), np.float64)

        def barrier(self) -> None:
            self.exchanged(None)

        def close(self) -> None:
            self.barrier()

        def abort(self, code: int) -> NoReturn:
            os._exit(code)

    rank, group = getattr(HERE, "rank", (0, Group(1)))
    if not hasattr(HERE, "world"):
        HERE.world = Threads(group, rank, range(group.size), Traffic())
    found: Communicator = HERE.world
    return found


TRANSPORT = Transport(
    name="threads",
    order=10,
    help="Threads of one process",
    join=join,
    launcher=lambda ranks: [sys.executable, "-m", "threads", str(ranks)],
    python=(),
)


def _run(rank: int, group: Group, main: Callable[[Sequence[str]], int], codes: dict[int, int]) -> None:
    HERE.rank = rank, group
    with TURN:
        codes[rank] = main(sys.argv[4:])


if __name__ == "__main__":
    # The module that the launcher's program names, and which the ranks find by the entry point.
    threads = importlib.import_module("threads")

    from gnnloom.trainer.__main__ import main

    assert sys.argv[2:4] == ["-m", "gnnloom.trainer"]
    # Only the main thread may handle signals.
    signal.signal = lambda *arguments: None
    together, found = threads.Group(int(sys.argv[1])), dict[int, int]()
    ranks = [threading.Thread(target=threads._run, args=(rank, together, main, found)) for rank in range(together.size)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    sys.exit(max(found.values()) if len(found) == together.size else 1)
