"""Thresholds: the keys below which exactly so many edges lie, found without sorting any.

A round counts the keys that agree with a threshold in the bits that are known, by their next 16 bits; the counts say
which 16 bits the threshold has. A round leaves about one edge in 2^16, and the last one is that which leaves one edge
or none: mostly two for up to 2^28 edges, and three for up to 2^44. Each is a pass over the graph, of one task for each
row block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.links.edge_keys import KEY_BITS, READING_BYTES, EdgeKeys
from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task, run
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.format.files import parsing, read_json, reading_work, write_json

#: Bits that a round finds.
ROUND_BITS: Final = 16
#: Rounds, at most.
MOST_ROUNDS: Final = KEY_BITS // ROUND_BITS
_CELLS: Final = 1 << ROUND_BITS


@dataclass(frozen=True)
class Search:
    """What is known of a threshold.

    Attributes:
        rank: edges that are to lie at or below it.
        prefix: its first bits.
        below: edges whose keys begin with lower ones.
        bits: how many bits are known; after the last round, all.
    """

    rank: int
    prefix: int = 0
    below: int = 0
    bits: int = 0

    @property
    def threshold(self) -> int:
        """The highest key that begins with the known bits."""
        return (self.prefix + 1 << KEY_BITS - self.bits) - 1

    def narrowed(self, counts: NDArray[np.int64]) -> Search:
        """The search after a round.

        Args:
            counts: (2^16,) edges whose keys begin with the known bits, by the next ones.
        """
        ends = self.below + np.cumsum(counts)
        cell = int(np.searchsorted(ends, self.rank))
        # All keys that begin with these bits are at or below the threshold: the other bits do not matter. If the keys
        # of edges are equal in all bits, those on the threshold are all at or below it.
        prefix, bits = self.prefix << ROUND_BITS | cell, self.bits + ROUND_BITS
        if int(ends[cell]) == self.rank or bits == KEY_BITS:
            return replace(self, prefix=(prefix + 1 << KEY_BITS - bits) - 1, below=int(ends[cell]), bits=KEY_BITS)
        return replace(self, prefix=prefix, below=int(ends[cell] - counts[cell]), bits=bits)


@dataclass(frozen=True)
class CountTask(Task):
    """Counts the keys of a block.

    Attributes:
        edges: of the graph.
        prefixes: known bits of the thresholds, all different.
        bits: how many bits are known.
        counts: the edges by threshold and next bits.
        lane: where the task writes them.
    """

    edges: EdgeKeys
    prefixes: tuple[int, ...]
    bits: int
    block: int
    counts: Shuffle
    lane: Lane


def round_plan(
    writer: ArtifactWriter, edges: EdgeKeys, sizes: GraphSizes, prefixes: Sequence[int], bits: int
) -> tuple[Phase, ShufflePlan]:
    """The phase of one round, and where its tasks leave their counts."""
    number = bits // ROUND_BITS
    shuffle = Shuffle(f"keys/{number}", len(prefixes) * _CELLS, (Column("edges", "int64"),), 1)
    plan = ShufflePlan.unmerged(writer, shuffle, sizes.num_blocks)
    tasks = [
        CountTask(
            writer,
            f"keys/{number}/{block:05d}",
            Needs(
                reads=sizes.entry_bytes * nnz + 8 * (rows + 1),
                writes=16 * min(nnz, len(prefixes) * _CELLS),
                memory=READING_BYTES + 32 * len(prefixes) * _CELLS,
            ),
            edges,
            tuple(prefixes),
            bits,
            block,
            shuffle,
            plan.lane(block),
        )
        for block, (rows, nnz) in enumerate(zip(sizes.block_rows, sizes.block_nnz, strict=True))
    ]
    return Phase("choose edges", count_keys, tasks, files=(plan.files,)), plan


def count_keys(task: CountTask) -> int:
    """Count the keys of the edges of a block; returns how many edges it has."""
    counts, total = np.zeros((len(task.prefixes), _CELLS), np.int64), 0
    shift = np.uint64(KEY_BITS - task.bits - ROUND_BITS)
    for found in task.edges.read(task.block):
        total += len(found.key)
        begin = found.key >> shift
        for place, prefix in enumerate(task.prefixes):
            # The first round knows no bits, and a shift by all 64 would leave the key as it is.
            own = begin[begin >> np.uint64(ROUND_BITS) == np.uint64(prefix)] if task.bits else begin
            cell = (own & np.uint64(_CELLS - 1)).astype(np.int64)
            counts[place] += np.bincount(cell, minlength=_CELLS)
    position = np.flatnonzero(counts)
    with task.writer.task(task.name) as output, task.counts.routed(output, task.lane) as out:
        out.add(Index.of_positions(position), {"edges": counts.reshape(-1)[position]})
    return total


def find_thresholds(
    writer: ArtifactWriter, edges: EdgeKeys, sizes: GraphSizes, options: DrawOptions, cluster: Cluster
) -> tuple[int, ...]:
    """The highest keys of the edges of each split, ascending: test, valid and, if they are held out, train.

    Raises:
        InputError: a split gets no edge.
    """
    path = writer.work / "thresholds.json"
    if path.exists():
        with reading_work(path), parsing(path, "the thresholds of splits"):
            return tuple(int(threshold) for threshold in read_json(path)["thresholds"])
    searches: list[Search] = []
    for bits in range(0, KEY_BITS, ROUND_BITS):
        prefixes = sorted({search.prefix for search in searches if search.bits == bits} or ({0} if not bits else set()))
        if not prefixes:
            break
        phase, plan = round_plan(writer, edges, sizes, prefixes, bits)
        run([phase], cluster, writer)
        counts = _read_counts(plan)
        searches = searches or [Search(rank) for rank in options.ranks(int(counts.sum()))]
        searches = [
            search.narrowed(counts[prefixes.index(search.prefix)]) if search.bits == bits else search
            for search in searches
        ]
    thresholds = [search.threshold for search in searches]
    # After a kill from here on, the counts are not needed any more.
    write_json(path, {"thresholds": [str(threshold) for threshold in thresholds]})
    _remove_counts(writer.work)
    return tuple(thresholds)


def _read_counts(plan: ShufflePlan) -> NDArray[np.int64]:
    """(num_prefixes, 2^16) int64 edges of all blocks."""
    counts, work = np.zeros(plan.shuffle.num_positions, np.int64), plan.writer.work
    with OpenFiles(work) as files:
        for section in plan.shuffle.rows(work, files).sections(0, plan.shuffle.num_positions):
            # Positions of a section are distinct.
            counts[section.position()] += section.read("edges")
    return counts.reshape(-1, _CELLS)


def _remove_counts(work: Path) -> None:
    for number in range(MOST_ROUNDS):
        Shuffle(f"keys/{number}", 1, (), 1).remove(work)
