"""Pools of negatives: pairs that are not edges of a graph, each equally likely, drawn without a list of all pairs.

The pairs of different vertices that are not edges are numbered by target, and then by source; W is their count. In a
relation between two types, these are pairs of any source and any target. Pair k of a pool of M has the number floor((k
+ U) W / M), where U is number k, uniform in [0, 1), of a stream of random numbers. So the expected number of
occurrences of every such pair is M / W, and the pool is ordered by k. A row block that knows the number of pairs before
its rows finds its range of the pool in one pass over its entries, also if nearly all pairs are edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane
from gnnloom.pipeline.links.edge_keys import EdgeKeys, can_have_loops, open_matrix
from gnnloom.pipeline.links.pair_arrays import PairArray
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task, WorkFiles
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.permutation import GOLDEN, mix
from gnnloom.storage.matrix.random_numbers import stream_key
from gnnloom.storage.shards.block_ranges import RANGE_BYTES, row_ranges
from gnnloom.storage.wording import counted

#: Splits that have a pool.
POOLED_SPLITS: Final = ("valid", "test")
#: Bytes of a pair, source and target.
_PAIR_BYTES: Final = 16
#: Limits of :func:`_number`: of the pairs of a pool, and of the vertices.
_MOST_PAIRS: Final = 1 << 32
_MOST_VERTICES: Final = 3_037_000_499
#: Fields of a cursor: row of the range, position of the next entry, non-edges before the row, whether the row has had
#: its loop or can have none, number of the next pair in the pool, the end of the pool, different columns of the
#: row's entries before the next one, and the last such column.
_ROW, _ENTRY, _BEFORE, _LOOP, _NEXT, _STOP, _SEEN, _LAST = range(8)
_LOW_HALF: Final = np.uint64((1 << 32) - 1)
_HALF: Final = np.uint64(32)


@dataclass(frozen=True)
class Pool:
    """One pool; small and picklable.

    Attributes:
        split: that its pairs are negatives for.
        stream: key of its stream of random numbers.
        num_pairs: its pairs.
        non_edges: pairs of different vertices that are not edges.
    """

    split: str
    stream: int
    num_pairs: int
    non_edges: int

    def below(self, number: int) -> int:
        """Number of the pool's pairs whose number is below ``number``, which is in 0 to ``non_edges``."""
        # The pairs before this one are drawn from lower numbers, and those after it from higher ones.
        found = number * self.num_pairs // self.non_edges
        if found == self.num_pairs:
            return found
        return found + int(_number(np.uint64(self.stream), found, self.num_pairs, self.non_edges) < number)


@dataclass(frozen=True)
class PoolTask(Task):
    """Draws the pairs of all pools whose targets are rows of a block.

    Attributes:
        graph: folder of the graph artifact.
        relation: name of the relation, in a graph with types.
        before: pairs of targets before the block that are not edges.
        draws: each pool, the range of its pairs, where they go, and the lane of the task.
    """

    graph: Path
    relation: str
    block: int
    before: int
    draws: tuple[tuple[Pool, range, Shuffle, Lane], ...]


@dataclass(frozen=True)
class LoopTask(Task):
    """Counts the loops of a block."""

    edges: EdgeKeys
    block: int


def count_loops(task: LoopTask) -> int:
    """Record how many entries of a block leave no pair out; returns the number of its edges."""
    total, left_out = 0, 0
    with task.writer.task(task.name) as output:
        for found in task.edges.read(task.block, task.writer.scratch):
            total, left_out = total + len(found.source), left_out + found.left_out
        output.facts["loops"] = left_out
    return total


def loop_phase(writer: ArtifactWriter, graph: Path, sizes: GraphSizes, relation: str = "") -> Phase:
    """The phase that counts the loops of each block, where no other task reads all of its edges.

    Args:
        relation: name of the relation, in a graph with types.
    """
    edges, tasks = EdgeKeys(graph, 0, relation=relation), []
    for block, (rows, nnz) in enumerate(zip(sizes.block_rows, sizes.block_nnz, strict=True)):
        needs = Needs(sizes.entry_bytes * nnz + 8 * (rows + 1), memory=edges.reading_bytes(writer.scratch))
        tasks.append(LoopTask(writer, f"loops/{block:05d}", needs, edges, block))
    return Phase("count loops", count_loops, tasks, files=(WorkFiles(),))


def draw_pools(task: PoolTask) -> int:
    """Draw the pairs of a block; returns their number."""
    total = sum(len(pairs) for _, pairs, _, _ in task.draws)
    with task.writer.task(task.name) as output, ExitStack() as opened:
        runs = [opened.enter_context(shuffle.routed(output, lane)) for _, _, shuffle, lane in task.draws]
        matrix = open_matrix(task.graph, task.relation)
        has_loops = can_have_loops(matrix)
        cursors = [_cursor(task.before, pairs, has_loops=has_loops) for _, pairs, _, _ in task.draws]
        most = max(1, task.writer.scratch.step_entries // 4)
        source, target = np.empty(most, np.int64), np.empty(most, np.int64)
        for entries in _entries(matrix, task.block, task.writer.scratch) if total else ():
            for (pool, *_), cursor, out in zip(task.draws, cursors, runs, strict=True):
                if entries.start == entries.pointers[0]:
                    cursor[_ROW] = 0
                count = most
                while count == most:
                    count = _draw(
                        cursor,
                        np.uint64(pool.stream),
                        pool.num_pairs,
                        pool.non_edges,
                        entries.first_row,
                        entries.pointers,
                        entries.start,
                        entries.columns,
                        matrix.num_columns,
                        has_loops,
                        source,
                        target,
                    )
                    if count:
                        own = {"source": source[:count], "target": target[:count]}
                        out.add(Index.of_offsets(np.array([0, count], np.int64)), own)
    return total


def _cursor(before: int, pairs: range, *, has_loops: bool) -> NDArray[np.int64]:
    cursor = np.zeros(8, np.int64)
    cursor[[_BEFORE, _NEXT, _STOP, _LOOP, _LAST]] = before, pairs.start, pairs.stop, not has_loops, -1
    return cursor


@dataclass(frozen=True)
class _Entries:
    """Consecutive entries of a range of rows; for attributes see :func:`_draw`."""

    first_row: int
    pointers: NDArray[np.int64]
    start: int
    columns: NDArray[Any]


def _entries(matrix: BlockMatrix, block: int, scratch: Scratch) -> Iterator[_Entries]:
    """All entries of a block, in steps of the sizes of ``scratch``; includes ranges of rows without entries."""
    columns = matrix.columns(block)
    for span in row_ranges(matrix, block, scratch.range_rows):
        first, last = int(span.pointers[0]), int(span.pointers[-1])
        for start, stop in [*columns.ranges(scratch.step_entries, first, last)] or [(first, first)]:
            yield _Entries(span.first, span.pointers, start, columns.read(start, stop))


@kernel
def _number(stream: np.uint64, k: int, num_pairs: int, non_edges: int) -> int:
    """Number of pair k of a pool among all pairs that are not edges."""
    size, total, place = np.uint64(num_pairs), np.uint64(non_edges), np.uint64(k)
    # U W, rounded down: the upper half of the product of W and the 64 bits of U, which has 128 bits.
    random = mix(stream + place * GOLDEN)
    low, high = random & _LOW_HALF, random >> _HALF
    total_low, total_high = total & _LOW_HALF, total >> _HALF
    carried = (low * total_low >> _HALF) + high * total_low
    carried_low = (carried & _LOW_HALF) + low * total_high
    within = high * total_high + (carried >> _HALF) + (carried_low >> _HALF)
    # (k W + within) / M in pieces that fit 64 bits.
    return int(place * (total // size) + within // size + (place * (total % size) + within % size) // size)


@kernel
def _draw(
    cursor: NDArray[np.int64],
    stream: np.uint64,
    num_pairs: int,
    non_edges: int,
    first_row: int,
    pointers: NDArray[np.int64],
    start: int,
    columns: NDArray[Any],
    num_columns: int,
    has_loops: bool,
    source: NDArray[np.int64],
    target: NDArray[np.int64],
) -> int:
    """Draw pairs whose targets are rows that consecutive entries of a block end, and those before these entries.

    Args:
        cursor: where to go on; moved to where to go on next.
        first_row: row of the matrix to which the first pointer belongs.
        pointers: (num_rows + 1,) int64 positions of rows.
        start: position of the first of these entries, which may lie within a row.
        columns: (num_entries,) their columns, ascending within a row, where one may follow itself.
        has_loops: a pair of a row and the column of the same number is a loop, which is no pair of a pool.
        source, target: (most,) int64, get the pairs.

    Returns:
        How many pairs there are; if there are ``most``, there may be more.
    """
    row, entry, before, has_loop = cursor[_ROW], cursor[_ENTRY], cursor[_BEFORE], cursor[_LOOP]
    k, stop, seen, last, count = cursor[_NEXT], cursor[_STOP], cursor[_SEEN], cursor[_LAST], 0
    number = _number(stream, k, num_pairs, non_edges) if k < stop else non_edges
    is_full = False
    while row < len(pointers) - 1:
        at_end, own = entry == pointers[row + 1], first_row + row
        if not at_end and entry == start + len(columns):
            break
        column = np.int64(num_columns) if at_end else np.int64(columns[entry - start])
        if column == last:
            # A parallel edge.
            entry += 1
            continue
        if column == own:
            has_loop = 1
        # The row's own vertex is no source, whether or not the loop is an entry.
        left_out = seen + (1 if column > own and not has_loop else 0)
        below = before + column - left_out
        while number < below:
            if count == len(source):
                is_full = True
                break
            found = number - before + seen
            source[count] = found + (1 if not has_loop and found >= own else 0)
            target[count] = own
            count, k = count + 1, k + 1
            number = _number(stream, k, num_pairs, non_edges) if k < stop else non_edges
        if is_full:
            break
        if at_end:
            row, before, has_loop, seen, last = row + 1, below, 0 if has_loops else 1, 0, -1
        else:
            entry, seen, last = entry + 1, seen + 1, column
    cursor[_ROW], cursor[_ENTRY], cursor[_BEFORE], cursor[_LOOP], cursor[_NEXT] = row, entry, before, has_loop, k
    cursor[_SEEN], cursor[_LAST] = seen, last
    return count


@dataclass(frozen=True, eq=False)
class PoolPlan:
    """The phase that draws the pools, and their arrays.

    Attributes:
        writer: of the links.
        graph: folder of the graph artifact.
        sizes: of the graph.
        pools: with pairs.
        relation: name of the relation, in a graph with types.
        before: (num_blocks + 1,) number of non-edges with targets before each block, and the number of all non-edges.
    """

    writer: ArtifactWriter
    graph: Path
    sizes: GraphSizes
    pools: Sequence[Pool]
    before: Sequence[int]
    relation: str = ""

    @classmethod
    def of(
        cls,
        writer: ArtifactWriter,
        graph: Path,
        sizes: GraphSizes,
        loops: Sequence[int],
        num_pairs: Mapping[str, int],
        negatives: int,
        seed: int,
        relation: str = "",
        *,
        has_loops: bool = True,
    ) -> PoolPlan:
        """Plan the pools of some splits; none if no negatives are wanted.

        Args:
            loops: entries of each row block that leave no pair out: loops, and parallel edges but the first.
            num_pairs: pairs of each split; those for training get no pool.
            negatives: pairs of a pool for each pair of its split.
            seed: of the random choice.
            relation: name of the relation, in a graph with types.
            has_loops: pairs of equal numbers are loops.

        Raises:
            InputError: every pair of vertices is an edge, or there are more vertices or pairs than can be drawn from.
        """
        n = max(sizes.num_vertices, sizes.num_columns)
        own = [
            rows * (sizes.num_columns - has_loops) - (nnz - loop)
            for rows, nnz, loop in zip(sizes.block_rows, sizes.block_nnz, loops, strict=True)
        ]
        before = [0, *accumulate(own)]
        counts = {split: negatives * num_pairs[split] for split in POOLED_SPLITS if split in num_pairs}
        if not negatives or not counts:
            return cls(writer, graph, sizes, (), before, relation)
        if before[-1] < 1:
            raise InputError(
                f"all pairs of {counted(n, 'vertex')} are edges, so none can be a negative; pass --negatives 0"
            )
        if n > _MOST_VERTICES or max(counts.values()) > _MOST_PAIRS:
            raise InputError(
                f"negatives {negatives}: {counted(max(counts.values()), 'pair')} of {counted(n, 'vertex')}; expected"
                f" at most {_MOST_PAIRS:,} pairs of at most {_MOST_VERTICES:,} vertices"
            )
        streams = {split: int(stream_key(seed, f"links/pool/{split}")) for split in counts}
        pools = [Pool(split, streams[split], count, before[-1]) for split, count in counts.items()]
        return cls(writer, graph, sizes, pools, before, relation)

    @property
    def facts(self) -> dict[str, Any]:
        """Facts of the manifest about the pools."""
        pooled = {pool.split: pool.num_pairs for pool in self.pools}
        return {"num_pooled": pooled, "non_edges": self.before[-1]}

    @cached_property
    def _plans(self) -> dict[str, ShufflePlan]:
        pair = (Column("source", "int64"), Column("target", "int64"))
        return {
            pool.split: ShufflePlan.unmerged(
                self.writer, Shuffle(f"pools/{pool.split}", 1, pair, 1), self.sizes.num_blocks
            )
            for pool in self.pools
        }

    def phases(self) -> list[Phase]:
        """The phase that draws the pools, if there are any."""
        if not self.pools:
            return []
        tasks = []
        step = self.writer.scratch.step_entries
        memory = RANGE_BYTES + self.sizes.entry_bytes * step + _PAIR_BYTES * step // 2
        ends = {pool.split: [pool.below(number) for number in self.before] for pool in self.pools}
        for block, (rows, nnz) in enumerate(zip(self.sizes.block_rows, self.sizes.block_nnz, strict=True)):
            draws = []
            for pool in self.pools:
                pairs, plan = range(*ends[pool.split][block : block + 2]), self._plans[pool.split]
                draws.append((pool, pairs, plan.shuffle, plan.lane(block)))
            drawn = sum(len(pairs) for _, pairs, _, _ in draws)
            reads = self.sizes.entry_bytes * nnz + 8 * (rows + 1)
            needs = Needs(reads if drawn else 0, _PAIR_BYTES * drawn, memory=memory)
            where = self.graph, self.relation, block, self.before[block]
            tasks.append(PoolTask(self.writer, f"pools/{block:05d}", needs, *where, tuple(draws)))
        files = tuple(plan.files for plan in self._plans.values())
        return [Phase("draw negatives", draw_pools, tasks, "pairs", files=files)]

    def arrays(self) -> list[PairArray]:
        """The arrays of the pools."""
        how = "int64", ("pooled", "end")
        return [
            PairArray(f"{pool.split}/pool", (pool.num_pairs, 2), *how, self._plans[pool.split], ("source", "target"))
            for pool in self.pools
        ]
