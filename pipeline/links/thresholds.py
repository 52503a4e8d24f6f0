"""Thresholds: keys with exactly a given number of edges at or below them, found without a sort.

A round counts the keys that agree with a threshold in the known bits, by their next 16 bits; the counts give the next
16 bits of the threshold. A round leaves about one edge in 2^16, and the last round leaves at most one edge: mostly two
rounds for up to 2^28 edges, and three for up to 2^44. Each round is a pass over the graph, with one task for each row
block. By time, the first rounds find the time, and others follow if the threshold is among edges of one time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.links.edge_keys import TIME_BITS, EdgeKeys, KeyedPairs
from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task, run
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.disk.files import parsing, read_json, reading_work, write_json
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import ArtifactWriter

#: Bits that a round finds.
ROUND_BITS: Final = 16
_CELLS: Final = 1 << ROUND_BITS


@dataclass(frozen=True)
class Search:
    """State of the search for a threshold.

    Attributes:
        rank: edges that are to lie at or below it.
        key_bits: bits of a key.
        prefix: its first bits.
        below: edges whose keys begin with lower ones.
        bits: number of known bits; after the last round, all.
    """

    rank: int
    key_bits: int
    prefix: int = 0
    below: int = 0
    bits: int = 0

    @property
    def threshold(self) -> int:
        """The highest key that begins with the known bits."""
        return (self.prefix + 1 << self.key_bits - self.bits) - 1

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
        if int(ends[cell]) == self.rank or bits == self.key_bits:
            found = (prefix + 1 << self.key_bits - bits) - 1
            return replace(self, prefix=found, below=int(ends[cell]), bits=self.key_bits)
        return replace(self, prefix=prefix, below=int(ends[cell] - counts[cell]), bits=bits)


@dataclass(frozen=True)
class CountTask(Task):
    """Counts the keys of a block.

    Attributes:
        edges: of the graph.
        prefixes: known bits of the thresholds, all different.
        bits: number of known bits.
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
                reads=edges.read_bytes(sizes, block),
                writes=16 * min(nnz, len(prefixes) * _CELLS),
                memory=edges.reading_bytes(writer.scratch) + 32 * len(prefixes) * _CELLS,
            ),
            edges,
            tuple(prefixes),
            bits,
            block,
            shuffle,
            plan.lane(block),
        )
        for block, nnz in enumerate(sizes.block_nnz)
    ]
    return Phase("choose edges", count_keys, tasks, files=(plan.files,)), plan


def count_keys(task: CountTask) -> int:
    """Count the keys of the edges of a block; returns how many edges it has."""
    counts, total = np.zeros((len(task.prefixes), _CELLS), np.int64), 0
    # The word that has the next bits, and how many of its bits follow them. No round has bits of two words.
    word, end = 0, task.edges.widths[0]
    while end <= task.bits:
        word, end = word + 1, end + task.edges.widths[word + 1]
    shift = np.uint64(end - task.bits - ROUND_BITS)
    for found in task.edges.read(task.block, task.writer.scratch):
        total += len(found.source)
        begin = found.words[word] >> shift
        for place, prefix in enumerate(task.prefixes):
            own = begin[_begin_with(found, task, prefix)]
            counts[place] += np.bincount((own & np.uint64(_CELLS - 1)).astype(np.int64), minlength=_CELLS)
    position = np.flatnonzero(counts)
    with task.writer.task(task.name) as output, task.counts.routed(output, task.lane) as out:
        out.add(Index.of_positions(position), {"edges": counts.reshape(-1)[position]})
    return total


def _begin_with(found: KeyedPairs, task: CountTask, prefix: int) -> NDArray[np.bool_] | slice:
    """Mask of the keys that begin with the given bits."""
    chosen: NDArray[np.bool_] | slice = slice(None)
    left = task.bits
    for word, width in zip(found.words, task.edges.widths, strict=True):
        known = min(width, left)
        if not known:
            break
        left -= known
        is_here = word >> np.uint64(width - known) == np.uint64(prefix >> left & (1 << known) - 1)
        chosen = is_here if isinstance(chosen, slice) else chosen & is_here
    return chosen


def find_thresholds(
    writer: ArtifactWriter, edges: EdgeKeys, sizes: GraphSizes, options: DrawOptions, cluster: Cluster
) -> tuple[int, ...]:
    """The highest keys of the edges of each split, ascending: test, valid and, if they are held out, train.

    Raises:
        InputError: a split gets no edge, or edges are chosen by their times, which are all equal.
    """
    path = writer.work / "thresholds.json"
    if path.exists():
        with reading_work(path), parsing(path, "the thresholds of splits"):
            return tuple(int(threshold) for threshold in read_json(path)["thresholds"])
    searches: list[Search] = []
    total = 0
    for bits in range(0, edges.key_bits, ROUND_BITS):
        prefixes = sorted({search.prefix for search in searches if search.bits == bits} or ({0} if not bits else set()))
        if not prefixes:
            break
        phase, plan = round_plan(writer, edges, sizes, prefixes, bits)
        run([phase], cluster, writer)
        counts = _read_counts(plan)
        total = total or int(counts.sum())
        searches = searches or [Search(rank, edges.key_bits) for rank in options.ranks(total)]
        if edges.times is not None and bits + ROUND_BITS == TIME_BITS and int(counts.max()) == total:
            row, cell = divmod(int(counts.argmax()), _CELLS)
            date = edges.date_of(prefixes[row] << ROUND_BITS | cell)
            raise InputError(
                f"{edges.times}: all {total:,} edges have the same time{date}, so none is later than others"
            )
        searches = [
            search.narrowed(counts[prefixes.index(search.prefix)]) if search.bits == bits else search
            for search in searches
        ]
    thresholds = [search.threshold for search in searches]
    # After a kill from here on, the counts are not needed any more.
    write_json(path, {"thresholds": [str(threshold) for threshold in thresholds]})
    for number in range(edges.key_bits // ROUND_BITS):
        Shuffle(f"keys/{number}", 1, (), 1).remove(writer.work)
    return tuple(thresholds)


def _read_counts(plan: ShufflePlan) -> NDArray[np.int64]:
    """(num_prefixes, 2^16) int64 edges of all blocks."""
    counts, work = np.zeros(plan.shuffle.num_positions, np.int64), plan.writer.work
    with OpenFiles(work) as files:
        for section in plan.shuffle.rows(work, files).sections(0, plan.shuffle.num_positions):
            # Positions of a section are distinct.
            counts[section.position()] += section.read("edges")
    return counts.reshape(-1, _CELLS)
