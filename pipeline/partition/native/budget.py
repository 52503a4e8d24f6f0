"""What a partitioner may take and what it will: memory that is free, and the peaks that were measured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gnnloom.pipeline.tasks.memory import MIB
from gnnloom.storage.errors import BudgetError

#: Peak per pin (METIS: per entry), and Mt-KaHyPar's gain cache per vertex and part, in bytes; measured.
_BYTES_PER_PIN = {"mtkahypar": 141, "kahypar": 260, "metis": 60}
_BYTES_PER_GAIN = 4


@dataclass(frozen=True)
class _GroupFiles:
    """Where a version of control groups says what memory a group has.

    Attributes:
        mount: folder of the hierarchy.
        pages: of files: those counts in ``memory.stat`` make room for others.
    """

    mount: str
    limit: str
    used: str
    pages: tuple[str, ...]


#: By the controller that a line of ``/proc/self/cgroup`` names: version 2 names none.
_GROUP_FILES = {
    "": _GroupFiles("", "memory.max", "memory.current", ("inactive_file", "active_file")),
    "memory": _GroupFiles(
        "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
    ),
}


def native_memory(method: str, preset: str, size: int, num_vertices: int, parts: int) -> int:
    """Bytes that a native partitioner peaks at, as measured on power-law graphs.

    Args:
        size: pins of the hypergraph, or entries of the graph.
    """
    gains = 0 if preset == "large-k" or method != "mtkahypar" else _BYTES_PER_GAIN * num_vertices * parts
    return _BYTES_PER_PIN[method] * size + gains


def check_native_memory(method: str, preset: str, size: int, num_vertices: int, parts: int, limit: int | None) -> None:
    """Raise BudgetError for what would drive this machine out of memory; call it before building a hypergraph.

    Args:
        limit: bytes that the partitioner may use; None for what the machine has.
    """
    check_memory(
        f"method {method}: {size:,} pins into {parts:,} parts",
        native_memory(method, preset, size, num_vertices, parts),
        limit,
        "use method multilevel, random or block, or more memory",
    )


def check_memory(what: str, needed: int, limit: int | None, way_out: str) -> None:
    """Raise BudgetError where ``what`` needs more bytes than the limit; None for what the machine has."""
    available = available_memory() if limit is None else limit
    if needed > available:
        raise BudgetError(
            f"{what}: about {memory_text(needed)} are needed, there are {memory_text(available)} for it; {way_out}"
        )


def memory_text(count: int) -> str:
    """Bytes as MiB, from 1 GiB on as GiB."""
    return f"{count / MIB:,.0f} MiB" if count < 1 << 30 else f"{count / (1 << 30):,.1f} GiB"


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that can be had without swapping: of the machine, and of the control groups that this process is in.

    Args:
        root: where ``proc`` and ``sys`` are mounted.
    """
    return min([_free_memory(root), *_group_memory(root)])


def _free_memory(root: Path) -> int:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _group_memory(root: Path) -> Iterator[int]:
    """What each control group with a limit has left; a container sees its own group at the top of the hierarchy."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        own = PurePosixPath(path.lstrip("/"))
        for controller in set(controllers.split(",")) & _GROUP_FILES.keys():
            files = _GROUP_FILES[controller]
            for group in (own, *own.parents):
                yield from _left_in(root / "sys/fs/cgroup" / files.mount / group, files)


def _left_in(folder: Path, files: _GroupFiles) -> Iterator[int]:
    """The bytes that a group may still take, if it has a limit."""
    try:
        limit, used = ((folder / name).read_text().strip() for name in (files.limit, files.used))
        counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except OSError:
        return
    if limit != "max":
        yield max(0, int(limit) - int(used) + sum(int(counts.get(name, 0)) for name in files.pages))
