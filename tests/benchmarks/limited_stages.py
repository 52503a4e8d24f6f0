"""Commands of gnnloom in a control group that stands for a small machine, with what they planned and used."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from control_group import Group
from processes import Watched, watch

from gnnloom.storage.disk.files import tree_bytes

GIB: Final = 1 << 30
#: Bytes of a block in which the system counts what a process writes.
_BLOCK: Final = 512


@dataclass(frozen=True)
class Stage:
    """One command.

    Attributes:
        name: for the table.
        plan: its own figures beforehand; None if it has none.
        result: what it printed.
        used: by its processes.
        group: bytes of the control group at its peak; None without one.
        written: bytes that its processes wrote.
        stored: bytes of the catalog afterwards.
    """

    name: str
    plan: dict[str, Any] | None
    result: dict[str, Any]
    used: Watched
    group: int | None
    written: int
    stored: int

    @property
    def memory(self) -> int:
        """Bytes of the largest process at its peak, without files that it maps."""
        return max(process.private for process in (self.used.client, *self.used.others))


@dataclass(frozen=True)
class Machine:
    """The small machine that the commands run on.

    Attributes:
        catalog: folder of the catalog.
        cores: of this machine that they may use.
        group: None without a limit.
    """

    catalog: Path
    cores: int
    group: Group | None

    def run(self, name: str, *arguments: str, plans: bool = True) -> Stage:
        """Run a command; ends the benchmark if it fails."""
        plan = json.loads(self._watched(*arguments, "--plan").output) if plans else None
        if self.group is not None:
            self.group.forget_peak()
        before = _written()
        used = self._watched(*arguments)
        return Stage(
            name,
            plan,
            json.loads(used.output),
            used,
            None if self.group is None else self.group.peak,
            _written() - before,
            tree_bytes(self.catalog),
        )

    def _watched(self, *arguments: str) -> Watched:
        command = [sys.executable, "-m", "gnnloom.workflows.cli.main", "--catalog", str(self.catalog), *arguments]
        return watch([*command, "--json"], enter=self._enter)

    def _enter(self) -> None:
        # Modules of models are looked for in the working directory.
        os.chdir(self.catalog.parent)
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: self.cores])
        if self.group is not None:
            self.group.enter()


@contextmanager
def kept_folder(given: Path | None, prefix: str, *, keep: bool) -> Iterator[Path]:
    """Make a folder below ``given``, or the system's folder for temporary files; removed afterwards unless kept."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=given)).resolve()
    try:
        yield folder
    finally:
        if keep:
            print(f"kept {folder}")
        else:
            shutil.rmtree(folder)


def _written() -> int:
    """Bytes that the ended children of this process have written so far."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock * _BLOCK


def report_stages(stages: Sequence[Stage], limit: int | None) -> None:
    """Print the table and the results of some stages, of which the last trains."""
    head = ("stage", "time", "planned", "largest process", "planned", "group", "written", "planned", "catalog after")
    rows = [head, *(_row(stage) for stage in stages)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print("without a limit" if limit is None else f"limit of {limit / GIB:.1f} GiB, pages of files included")
    for row in rows:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
    trained = stages[-1].result
    print(f"train: losses {', '.join(f'{loss:.5f}' for loss in trained['loss'])}")
    if evaluation := trained.get("evaluation"):
        where = f"{size_text(evaluation['disk'])} of temporary files" if evaluation["on_disk"] else "in memory"
        print(f"evaluation: {evaluation['seconds']:.1f} s, {evaluation['columns']} columns at a time, {where}")
    if trained["test_accuracy"] is not None:
        print(f"RESULT test-accuracy {trained['test_accuracy']:.4f} share")
    print(f"RESULT epoch {trained['epoch_seconds']:.3f} s")
    if "read_per_used" in trained:
        print(f"RESULT read-per-used {trained['read_per_used']:.3g} x")
    for stage in stages:
        print(f"RESULT {stage.name}-time {stage.used.wall:.2f} s")
        print(f"RESULT {stage.name}-memory {stage.memory} bytes")
        if stage.group is not None:
            print(f"RESULT {stage.name}-group {stage.group} bytes")
    print(f"RESULT catalog {stages[-1].stored} bytes")


def _row(stage: Stage) -> tuple[str, ...]:
    plan = stage.plan or {}
    seconds = plan.get("seconds")
    memory = plan.get("peak_memory")
    written = sum(plan.get(name, 0) for name in ("output_bytes", "spill_bytes", "vertex_bytes", "written_bytes"))
    # A training maps most of its temporary files, and the uncompressed copies that it makes.
    written += max(plan.get(name, 0) for name in ("mapped_bytes", "temporary_bytes"))
    return (
        stage.name,
        f"{stage.used.wall:.1f} s",
        _shown(seconds, lambda number: f"{number:.1f} s"),
        size_text(stage.memory),
        _shown(max(memory) if isinstance(memory, list) else memory, size_text),
        _shown(stage.group, size_text),
        size_text(stage.written),
        _shown(written or None, size_text),
        size_text(stage.stored),
    )


def _shown(number: Any, show: Callable[[Any], str]) -> str:
    return "" if number is None else show(number)


def size_text(count: float) -> str:
    return f"{count / GIB:.2f} GiB"
