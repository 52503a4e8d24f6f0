"""ogbn-papers100M's shape, from raw files to a trained model, in little memory.

    python tests/benchmarks/papers_shape.py [--scale tiny|small|quarter|half|full] [--fraction F] [--folder FOLDER]
        [--memory SIZE] [--cores N] [--epochs N] [--keep] [--precision float32|bf16]

Writes a folder in OGB's binary layout (:mod:`papers_folder`) and runs the commands from there to a trained GraphSAGE:

    gnnloom ingest papers FOLDER --format ogb-binary --undirected --store float16
    gnnloom partition papers --parts 1 --method block
    gnnloom shard papers --parts 1
    gnnloom train papers --model sage --hidden 64,64 --mode neighbor --fanout 15,10,5 --inputs disk --pool 2 --epochs 3

Every command first prints what it expects to need (``--plan``), where it can. All its processes run in one control
group, whose limit holds for their memory and for the pages of the files that they read and write; where this process
may not make a control group, they run without, with a word. Once ingested, the raw files are removed unless ``--keep``
is given.

Prints one table for people, and lines ``RESULT name value unit``. Memory of a process is without files that it maps.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from control_group import Group, memory_group
from papers_folder import Shape, write_papers
from processes import Watched, watch

from gnnloom.storage.disk.files import tree_bytes
from gnnloom.storage.option import parse_bytes

#: Share of papers100M's vertices and edges.
SCALES: Final = {"tiny": 1 / 20_000, "small": 1 / 100, "quarter": 1 / 4, "half": 1 / 2, "full": 1.0}
_NAME: Final = "papers"
_GIB: Final = 1 << 30
#: Bytes of a block in which the system counts what a process writes.
_BLOCK: Final = 512
#: Memory of the group that a worker of the pipeline, and the evaluation, may use.
_WORKER_SHARE, _EVALUATION_SHARE = 0.3, 0.4
#: Two batches are prepared ahead: each has the features of up to a million vertices.
_TRAIN: Final = (
    *("--model", "sage", "--hidden", "64,64", "--mode", "neighbor", "--fanout", "15,10,5"),
    *("--inputs", "disk", "--pool", "2"),
)


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
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: self.cores])
        if self.group is not None:
            self.group.enter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "small"))
    parser.add_argument("--fraction", type=float, help="of papers100M's vertices and edges, instead of that of --scale")
    parser.add_argument("--folder", type=Path, help="for the raw files and the catalog [default: the system's]")
    parser.add_argument("--memory", type=parse_bytes, default=8 * _GIB, help="of the control group, such as 8G")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    parser.add_argument("--keep", action="store_true", help="keep the raw files and the catalog")
    options = parser.parse_args()
    shape = Shape(options.fraction or SCALES[options.scale])
    with _folder(options.folder, keep=options.keep) as folder:
        print(f"{shape.vertices:,} vertices, {shape.edges:,} directed edges, {shape.num_bytes / _GIB:.1f} GiB raw")
        write_papers(folder / "raw", shape)
        with memory_group(f"gnnloom-papers-{os.getpid()}", options.memory) as group:
            if group is None:
                print("note: this process may not make a control group, so nothing limits the memory")
            stages = _run(Machine(folder / "catalog", options.cores, group), folder / "raw", options)
        _report(stages, options.memory if group is not None else None)


def _run(machine: Machine, raw: Path, options: argparse.Namespace) -> list[Stage]:
    workers = ("--workers", str(options.cores), "--memory", str(int(options.memory * _WORKER_SHARE)))
    source = ("ingest", _NAME, str(raw), "--format", "ogb-binary", "--undirected", "--store", "float16")
    stages = [machine.run("ingest", *source, *workers)]
    if not options.keep:
        shutil.rmtree(raw)
    block = ("partition", _NAME, "--parts", "1", "--method", "block")
    stages.append(machine.run("partition", *block, *workers, plans=False))
    stages.append(machine.run("shard", "shard", _NAME, "--parts", "1", *workers))
    evaluation = ("--evaluation-memory", str(int(options.memory * _EVALUATION_SHARE)))
    more = ("--epochs", str(options.epochs), "--eval-every", "0", "--precision", options.precision, *evaluation)
    stages.append(machine.run("train", "train", _NAME, *_TRAIN, *more))
    return stages


@contextmanager
def _folder(given: Path | None, *, keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="papers-", dir=given))
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


def _report(stages: list[Stage], limit: int | None) -> None:
    """Print the table and the results."""
    head = ("stage", "time", "planned", "largest process", "planned", "group", "written", "planned", "catalog after")
    rows = [head, *(_row(stage) for stage in stages)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print("without a limit" if limit is None else f"limit of {limit / _GIB:.1f} GiB, pages of files included")
    for row in rows:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
    trained = stages[-1].result
    print(f"train: losses {', '.join(f'{loss:.5f}' for loss in trained['loss'])}")
    if evaluation := trained.get("evaluation"):
        where = f"{_size(evaluation['disk'])} of temporary files" if evaluation["on_disk"] else "in memory"
        print(f"evaluation: {evaluation['seconds']:.1f} s, {evaluation['columns']} columns at a time, {where}")
    print(f"RESULT test-accuracy {trained['test_accuracy']:.4f} share")
    print(f"RESULT epoch {trained['epoch_seconds']:.3f} s")
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
    # Of the training, with the uncompressed copies that it makes, and what an evaluation from disk writes.
    counted = ("output_bytes", "spill_bytes", "vertex_bytes", "written_bytes", "mapped_bytes", "temporary_bytes")
    written = sum(plan.get(name, 0) for name in counted)
    return (
        stage.name,
        f"{stage.used.wall:.1f} s",
        _shown(seconds, lambda number: f"{number:.1f} s"),
        _size(stage.memory),
        _shown(max(memory) if isinstance(memory, list) else memory, _size),
        _shown(stage.group, _size),
        _size(stage.written),
        _shown(written or None, _size),
        _size(stage.stored),
    )


def _shown(number: Any, show: Callable[[Any], str]) -> str:
    return "" if number is None else show(number)


def _size(count: float) -> str:
    return f"{count / _GIB:.2f} GiB"


if __name__ == "__main__":
    main()
