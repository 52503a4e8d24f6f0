"""A nanny that ends its worker before a task that needs far too much memory takes the whole machine down."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distributed import Nanny
from distributed.system import MEMORY_LIMIT
from tornado.ioloop import PeriodicCallback

from gnnloom.pipeline.tasks.memory import BASE_MEMORY, MIB
from gnnloom.storage.machine_memory import available_memory

#: Milliseconds between two looks. A process takes a few hundred megabytes of new pages meanwhile, at the most.
_LOOK_MILLISECONDS = 100

#: Share of the machine, and bytes, that have to be left. With less, the machine begins to swap or to kill processes.
_RESERVED_SHARE, _LEAST_RESERVED = 0.03, 256 * MIB


@dataclass(frozen=True)
class Guard:
    """When nannies of this process end their workers, and which they have ended.

    Attributes:
        most_memory: bytes of its own that a worker may hold in any case.
        ended: bytes that each worker held that was ended.
    """

    most_memory: int
    ended: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, memory: int) -> Guard:
        """The guard of workers whose tasks may use ``memory`` bytes.

        No task that keeps to its budget gets to twice the budget and what a process holds before its first task.
        """
        return cls(2 * memory + BASE_MEMORY)


def own_memory(pid: int, root: Path = Path("/")) -> int:
    """Bytes of memory and swap space that only this process holds; 0 if it has ended.

    Pages of mapped files do not count: the kernel drops them when memory runs out, and processes share them.
    """
    try:
        lines = (root / "proc" / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0
    fields = dict(line.split(":", 1) for line in lines)
    return sum(1024 * int(fields[name].split()[0]) for name in ("RssAnon", "VmSwap") if name in fields)


class GuardedNanny(Nanny):
    """Kills its worker if this holds far more than its budget while the machine runs out of memory.

    Both conditions are needed. Dask's own limit also counts mapped files, so it would end workers that read a mapped
    graph. And some tasks exceed any small budget: a row shard is built in memory, which does no harm as long as the
    machine has enough of it.
    """

    def __init__(self, *args: Any, guard: Guard, **options: Any) -> None:
        super().__init__(*args, **options)
        self._guard = guard
        self.periodic_callbacks["gnnloom-guard"] = PeriodicCallback(self._look, _LOOK_MILLISECONDS)

    def _look(self) -> None:
        process = self.process.process if self.process is not None else None
        if process is None or process.pid is None:
            return
        held = own_memory(process.pid)
        if held > self._guard.most_memory and available_memory() < _reserved():
            self._guard.ended.append(held)
            process.kill()


def _reserved() -> int:
    return max(_LEAST_RESERVED, int(_RESERVED_SHARE * MEMORY_LIMIT))
