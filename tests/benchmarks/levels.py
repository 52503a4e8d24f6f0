"""Compares the levels of ``--quality`` with the methods that a user could name instead, and writes the table.

Nothing is reused: every partition is made in an empty dataset folder.  The slowest method is timed as one of
the ways that ``best`` tries, and not run a second time.
"""

from __future__ import annotations

import logging
import resource
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Dataset

LEVELS = ("fast", "balanced", "best")
#: Method and preset, the quick ones first.  KaHyPar and Mt-KaHyPar's ``quality`` and ``highest-quality`` are left out:
#: they take about as long as the slowest of these or longer, and the last two depend on the timing of threads.
METHODS = (
    ("metis", ""),
    ("kaminpar", "default"),
    ("multilevel", "flat"),
    ("multilevel", "streaming"),
    ("mtkahypar", "large-k"),
    ("mtkahypar", "default"),
    ("mtkahypar", "deterministic"),
    ("mtkahypar", "deterministic-quality"),
)
#: What ``best`` tries on every graph, and is timed in.
OF_BEST = {"mtkahypar deterministic-quality"}
#: More parts than these make two presets too slow to be measured once more.
_MANY_PARTS, _SLOW = 64, {"deterministic", "default"}
#: Columns of the table.
HEADER = ("graph", "parts", "partition", "rows sent", "ratio", "s", "of `best`", "of the best method")


@dataclass(frozen=True)
class Made:
    """A partition that was made.

    Attributes:
        name: of the level or the method.
        rows: sent in total.
        seconds: of processor time, of this process and its children.
        chosen: what the level chose; empty for a method.
    """

    name: str
    rows: int
    seconds: float
    chosen: str = ""


@dataclass(frozen=True)
class Comparison:
    """All partitions of a graph into some parts."""

    graph: str
    parts: int
    levels: list[Made] = field(default_factory=list)
    methods: list[Made] = field(default_factory=list)

    @property
    def winner(self) -> Made:
        """The method that sends the fewest rows, which is known only after all of them have run."""
        return min(self.methods, key=lambda made: (made.rows, made.seconds))

    def table_rows(self) -> Iterator[str]:
        """Yield the rows of the table: levels first, then methods by the rows that they send."""
        best = next(made for made in self.levels if made.name == "best")
        for made in [*self.levels, *sorted(self.methods, key=lambda each: each.rows)]:
            is_level = made in self.levels
            name = f"`{made.name}`: {made.chosen}" if is_level else made.name
            times = (made.seconds / best.seconds, made.seconds / self.winner.seconds)
            ratio = made.rows / self.winner.rows
            yield _row(
                self.graph, self.parts, name, f"{made.rows:,}", f"{ratio:.3f}", f"{made.seconds:.1f}",
                *(f"{time:.2f}" for time in times),
            )  # fmt: skip


def compare(graph: str, dataset: Dataset, parts: int, methods: Sequence[tuple[str, str]] = METHODS) -> Comparison:
    """Partition a graph by all levels and methods."""
    found = Comparison(graph, parts)
    found.levels.extend(_level(dataset, parts, level) for level in LEVELS[:2])
    late = []
    for method, preset in methods:
        name = f"{method} {preset}".rstrip()
        if name in OF_BEST:
            late.append(name)
        elif parts <= _MANY_PARTS or preset not in _SLOW:
            found.methods.append(_make(name, dataset, PartitionOptions(parts, method, preset=preset, threads=1)))
    with _timed_ways() as ways:
        found.levels.append(_level(dataset, parts, LEVELS[2]))
    found.methods.extend(Made(name, *ways[name]) for name in late)
    return found


def write_table(path: Path, comparison: Comparison) -> None:
    """Append the rows of a comparison to a Markdown table."""
    is_new = not path.exists()
    with path.open("a", encoding="utf-8") as file:
        if is_new:
            file.write(_row(*HEADER) + "\n" + _row(*["---"] * len(HEADER)) + "\n")
        file.writelines(f"{row}\n" for row in comparison.table_rows())


def processor_seconds() -> float:
    """Processor seconds of this process and of the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _level(dataset: Dataset, parts: int, level: str) -> Made:
    return _make(level, dataset, PartitionOptions(parts, quality=level, threads=1))


def _make(name: str, dataset: Dataset, options: PartitionOptions) -> Made:
    """Make a partition, and remove it so that nothing finds it."""
    before = processor_seconds()
    partition = partition_graph(dataset, dataset.graph(), options, InProcessCluster(1 << 30))
    seconds, quality = processor_seconds() - before, partition.quality
    shutil.rmtree(partition.artifact.path)
    # A graph takes long: what is done should be seen before the rest is.
    print(
        f"# {dataset.name} {options.parts} {name}: {quality['km1']} rows, {seconds:.2f} s", file=sys.stderr, flush=True
    )
    return Made(name, quality["km1"], seconds, str(quality.get("chosen", "")))


class _Stopwatch(logging.Handler):
    """Reads the processor time whenever a way of making parts has been tried."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.ways: dict[str, tuple[int, float]] = {}
        self._before = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        now = processor_seconds()
        message = str(record.msg)
        if message == "partition: %s sends %s rows" and isinstance(record.args, tuple):
            way, rows = map(str, record.args)
            self.ways[way] = (int(rows.replace(",", "")), now - self._before)
        # A way begins where the one before ended, and the first after the announcement of the choice.
        if message.startswith("partition: "):
            self._before = now


@contextmanager
def _timed_ways() -> Iterator[dict[str, tuple[int, float]]]:
    """Collect rows and processor seconds of the ways that a level tries."""
    logger, watch = logging.getLogger("gnnloom.pipeline"), _Stopwatch()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(watch)
    try:
        yield watch.ways
    finally:
        logger.removeHandler(watch)
        logger.setLevel(level)


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"
