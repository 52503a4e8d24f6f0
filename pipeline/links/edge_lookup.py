"""Finds the pairs that are edges: routes pairs to the row blocks, looks them up, and routes the entries back.

The same pass finds pairs that are in two splits: equal pairs meet in one row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.links.edge_keys import open_matrix
from gnnloom.pipeline.links.message_graph import find_columns, more_rows
from gnnloom.pipeline.links.pair_arrays import PairArray
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.section_rows import SectionRows
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.memory import MIB, WRITING_BYTES, working_memory
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task, WorkFiles, records_of
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.errors import BudgetError, InputError
from gnnloom.storage.format.arrays import CHUNK_BYTES, ArrayReader, ArrayRecord
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.format.schema import LINK_SPLITS
from gnnloom.storage.shards.block_ranges import RANGE_BYTES, row_ranges

#: Pairs that are looked up at a time, unless one row has more; bytes of each in a file, and in memory: row, column,
#: list, number, place and entry, as read and sorted.
LOOKED_UP: Final = 1 << 17
_FILED_BYTES: Final = 25
#: Chunks of pairs that are routed as one run, and the bytes of memory of each number in them.
_ROUTED_CHUNKS: Final = 2
_ROUTED_BYTES: Final = 80
_PAIR_BYTES: Final = 128
#: Bytes of an entry while the entries that pairs hold out are found: whether it is new, its group, its list, positions.
_HELD_BYTES: Final = 40
#: Lists whose pairs are links; pairs of all other lists are negatives. Their codes are their places here.
_LINKS: Final = tuple(f"{split}/pair" for split in LINK_SPLITS)
_TRAIN: Final = _LINKS.index("train/pair")


@dataclass(frozen=True)
class AskTask(Task):
    """Routes the pairs of a piece of an array to their rows.

    Attributes:
        links: folder of the links artifact.
        array: the array, and the piece of it that the task reads.
        pairs: for negatives of each pair, the array with the pairs.
        code: of the list.
        symmetric: (u, v) and (v, u) are the same pair.
        reverse: look for (v, u) instead of (u, v).
        has_loops: a pair of equal numbers is a loop.
    """

    links: Path
    array: ArrayRecord
    pairs: ArrayRecord | None
    code: int
    symmetric: bool
    reverse: bool
    asked: Shuffle
    lane: Lane
    has_loops: bool = True


def ask(task: AskTask) -> int:
    """Route some pairs; returns their number.

    Raises:
        InputError: a link is a loop.
    """
    (piece,) = task.array.pieces
    reader = ArrayReader(task.links, task.array)
    pairs = None if task.pairs is None else ArrayReader(task.links, task.pairs)
    count = 0
    with task.writer.task(task.name) as output, task.asked.routed(output, task.lane) as out:
        # Few runs, because readers look their rows up in every run.
        step = _ROUTED_CHUNKS * reader.chunk_rows
        for start in range(piece.start, piece.stop, step):
            rows = reader.read(start, min(start + step, piece.stop))
            if pairs is None:
                column, row = rows[:, 0], rows[:, 1]
                _check_loops(task, row, column, start)
            else:
                column = np.repeat(pairs.read(start, start + len(rows))[:, 0], rows.shape[1])
                row = rows.reshape(-1)
            if task.reverse:
                row, column = column, row
            if task.symmetric:
                row, column = np.maximum(row, column), np.minimum(row, column)
            order = np.argsort(row, kind="stable")
            first = start * (1 if pairs is None else rows.shape[1])
            values = {
                "column": column[order],
                "list": np.full(len(row), task.code, np.uint8),
                "number": first + order.astype(np.int64),
            }
            out.add(Index.of_positions(row[order]), values)
            count += len(row)
    return count


def _check_loops(task: AskTask, row: NDArray[np.int64], column: NDArray[np.int64], first: int) -> None:
    loops = np.flatnonzero(row == column) if task.has_loops and task.code < len(_LINKS) else row[:0]
    if len(loops):
        split, number = task.array.path.partition("/")[0], first + int(loops[0])
        raise InputError(
            f"{split} pairs, row {number:,}: a loop at vertex {row[loops[0]]} of the graph; remove such pairs"
        )


@dataclass(frozen=True)
class AnswerTask(Task):
    """Looks up the pairs of a row block.

    Attributes:
        graph: folder of the graph artifact.
        num_lists: lists of pairs.
        holds_out: as for :class:`LookupPlan`.
        answered: shuffle of the entries of the pairs for training, by their number, and the lane; None if there are no
            such pairs.
        memory: bytes that the worker may use.
        relation: name of the relation, in a graph with types.
        held: where the positions of the edges go that the pairs of a list hold out, and the lane, by code of the list.
    """

    graph: Path
    number: int
    num_lists: int
    holds_out: bool
    asked: Shuffle
    answered: tuple[Shuffle, Lane] | None
    memory: int
    relation: str = ""
    held: Mapping[int, tuple[Shuffle, Lane]] = field(default_factory=dict)


def answer(task: AnswerTask) -> int:
    """Look up the pairs of a block; returns their number.

    Records how many pairs of each list are edges, how many links occur in several splits, and an example of such a
    link.

    Raises:
        BudgetError: a row has more pairs than fit in memory.
    """
    graph, total, held_out = open_matrix(task.graph, task.relation), 0, dict.fromkeys(task.held, 0)
    edges, shared, example = np.zeros(task.num_lists, np.int64), 0, None
    with ExitStack() as opened:
        output = opened.enter_context(task.writer.task(task.name))
        files = opened.enter_context(OpenFiles(task.writer.work))
        out = None
        if task.answered is not None:
            shuffle, lane = task.answered
            out = opened.enter_context(shuffle.routed(output, lane))
        held = {code: opened.enter_context(way.routed(output, lane)) for code, (way, lane) in task.held.items()}
        for found in _looked_up(task, graph, files):
            total += len(found.row)
            edges += found.count(task.num_lists)
            shared, example = shared + found.num_shared, example or found.example
            if out is not None:
                out.add(*found.train_entries(holds_out=task.holds_out))
            for code, position in found.held.items():
                held_out[code] += len(position)
                held[code].add(Index.of_offsets(np.array([0, len(position)], np.int64)), {"edge": position})
        output.facts |= {"edges": edges.tolist(), "shared": shared, "example": example}
        if task.held:
            output.facts["held_out"] = list(held_out.values())
    return total


@dataclass(frozen=True)
class _Found:
    """Pairs by row, column and list, and their entries.

    Attributes:
        row, column, number: (num_pairs,) int64.
        code: (num_pairs,) uint8, of the list.
        entry: (num_pairs,) entry of the graph; 0 for a pair that is not an edge.
        is_edge: (num_pairs,) bool.
        held: (num_held,) int64 positions of edges of a relation that the pairs of a list hold out, ascending, by code
            of the list; without lists that hold none out.
    """

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    code: NDArray[np.uint8]
    number: NDArray[np.int64]
    entry: NDArray[Any]
    is_edge: NDArray[np.bool_]
    held: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)

    @cached_property
    def _group(self) -> NDArray[np.int64]:
        """(num_pairs,) int64 number of each among distinct pairs."""
        new = np.ones(len(self.row), np.bool_)
        new[1:] = (self.row[1:] != self.row[:-1]) | (self.column[1:] != self.column[:-1])
        return np.cumsum(new, dtype=np.int64) - 1

    def _has(self, some: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(num_pairs,) bool; whether some of the pairs that are equal to each are among these."""
        found = np.zeros(int(self._group[-1]) + 1 if len(self._group) else 0, np.bool_)
        found[self._group[some]] = True
        return found[self._group]

    def count(self, num_lists: int) -> NDArray[np.int64]:
        """(num_lists,) int64 pairs of each list that are edges; in lists of negatives, links count as well."""
        is_link = self.code < len(_LINKS)
        positive = np.where(is_link, self.is_edge, self.is_edge | self._has(is_link))
        return np.bincount(self.code[positive], minlength=num_lists)

    @cached_property
    def _shared(self) -> NDArray[np.int64]:
        """Links that are equal to the one before them, of another split."""
        link = np.flatnonzero(self.code < len(_LINKS))
        same = (self._group[link][1:] == self._group[link][:-1]) & (self.code[link][1:] != self.code[link][:-1])
        found: NDArray[np.int64] = link[1:][same]
        return found

    @property
    def num_shared(self) -> int:
        return len(self._shared)

    @property
    def example(self) -> list[int] | None:
        """Source and target of a link in several splits, and the codes of two such splits."""
        if not len(self._shared):
            return None
        at = int(self._shared[0])
        before = int(np.flatnonzero((self._group == self._group[at]) & (self.code < self.code[at]))[-1])
        return [int(self.column[at]), int(self.row[at]), int(self.code[before]), int(self.code[at])]

    def train_entries(self, *, holds_out: bool) -> tuple[Index, dict[str, NDArray[Any]]]:
        """The entries that the pairs for training have in the graph that the model reads, by number."""
        held_out = self._has((self.code < len(_LINKS)) & (self.code != _TRAIN) & holds_out)
        entry = np.where(held_out, self.entry.dtype.type(0), self.entry)
        own = np.flatnonzero(self.code == _TRAIN)
        own = own[np.argsort(self.number[own])]
        return Index.of_positions(self.number[own]), {"weight": entry[own]}


def _looked_up(task: AnswerTask, graph: BlockMatrix, files: OpenFiles) -> Iterator[_Found]:
    asked, before = task.asked.rows(task.writer.work, files), sum(graph.block_nnz[: task.number])
    columns, weights = graph.columns(task.number), graph.weights(task.number)
    step = more_rows(LOOKED_UP, task.memory, task.needs.memory, _PAIR_BYTES)
    for span in row_ranges(graph, task.number, task.writer.scratch.range_rows):
        last = span.first + len(span.pointers) - 1
        for some in asked.steps(_FILED_BYTES * step, span.first, last) if last > span.first else ():
            if not some.num_rows:
                continue
            _check_memory(task, some)
            first, stop = some.positions
            pointers = span.pointers[first - span.first : stop - span.first + 1]
            row, column, code, number = _sorted(some, graph.num_columns)
            offsets = np.searchsorted(row, np.arange(first, stop + 1))
            entry = np.zeros(len(row), np.uint8 if weights is None else weights.dtype)
            is_edge = np.zeros(len(row), np.bool_)
            held = defaultdict[int, list[NDArray[np.int64]]](list)
            for begin, end in columns.ranges(task.writer.scratch.step_entries, int(pointers[0]), int(pointers[-1])):
                place = np.full(len(row), -1, np.int64)
                here = columns.read(begin, end)
                find_columns(pointers, begin, here, offsets, column, place)
                own = np.flatnonzero(place >= 0)
                is_edge[own] = True
                entry[own] = 1 if weights is None else weights.read(begin, end)[place[own]]
                if task.held and len(own):
                    first_of_row = pointers[(pointers >= begin) & (pointers < end)] - begin
                    for number_of_list, position in _held_out(task, here, first_of_row, place[own], code[own]):
                        held[number_of_list].append(before + begin + position)
            joined = {number_of_list: np.concatenate(parts) for number_of_list, parts in held.items()}
            yield _Found(row, column, code, number, entry, is_edge, joined)


def _held_out(
    task: AnswerTask,
    columns: NDArray[Any],
    first_of_row: NDArray[np.int64],
    place: NDArray[np.int64],
    code: NDArray[np.uint8],
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The entries that pairs hold out, with all that are parallel to them; an entry counts for one list only.

    Args:
        columns: (num_entries,) columns of consecutive entries.
        first_of_row: places of the first entries of rows among them.
        place, code: (num_found,) places of the first entry of each pair, and the code of its list.
    """
    holds = np.isin(code, list(task.held))
    is_new = np.ones(len(columns), np.bool_)
    is_new[1:] = columns[1:] != columns[:-1]
    is_new[first_of_row] = True
    group = np.cumsum(is_new) - 1
    of_group = np.full(int(group[-1]) + 1, np.iinfo(np.uint8).max, np.uint8)
    np.minimum.at(of_group, group[place[holds]], code[holds])
    of_entry = of_group[group]
    for each in task.held:
        found = np.flatnonzero(of_entry == each)
        if len(found):
            yield each, found


def _sorted(
    some: SectionRows, num_vertices: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]:
    """Rows, columns, lists and numbers, by row, column and list."""
    row, column, code, number = some.position, *(some.column(name) for name in ("column", "list", "number"))
    # Rows of one position are in the order of routing, which is the order of lists and numbers. One number for row and
    # column fits, because all rows are in one range of a block.
    order = np.argsort((row - some.positions[0]) * num_vertices + column, kind="stable")
    return row[order], column[order], code[order], number[order]


def _check_memory(task: AnswerTask, some: SectionRows) -> None:
    most = LOOKED_UP + (working_memory(task.memory) - task.needs.memory) // _PAIR_BYTES
    if some.num_rows > most:
        raise BudgetError(
            f"{task.graph}: {some.num_rows:,} pairs of vertex {some.positions[0]} are given, too many for"
            f" {task.memory // MIB:,} MiB per worker; increase --memory"
        )


@dataclass(frozen=True)
class LookedUp:
    """Facts about given pairs.

    Attributes:
        edges: pairs of each list, by the path of its array, that are edges of the graph or, of negatives, links.
        held_out: number of edges of a relation that the pairs of each split hold out.
        shared: links that are in several splits.
        example: source and target of such a link, and the paths of two of the arrays; None if there is none.
    """

    edges: Mapping[str, int]
    shared: int
    example: tuple[int, int, str, str] | None
    held_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class LookupPlan:
    """The phases that look pairs up.

    Attributes:
        writer: of the links.
        records: arrays of pairs, pools and negatives by path.
        graph: folder of the graph artifact.
        sizes: of the graph.
        weight_dtype: dtype of the entries; None for an unweighted graph.
        holds_out: pairs for validation and testing have no entries in the graph that the model reads.
        memory: bytes that a worker may use.
        weight: array that gets the entries of the pairs for training.
        name: suffix of the names of tasks and shuffles.
        reverse: look for the reverses of the pairs.
        relation: name of the relation, in a graph with types, whose pairs hold out all parallel edges and need no
            entries.
        has_loops: a pair of equal numbers is a loop.
    """

    writer: ArtifactWriter
    records: Mapping[str, ArrayRecord]
    graph: Path
    sizes: GraphSizes
    weight_dtype: str | None
    holds_out: bool
    memory: int
    weight: str = "train/weight"
    name: str = ""
    reverse: bool = False
    relation: str = ""
    has_loops: bool = True

    @property
    def names(self) -> list[str]:
        """Paths of the arrays by their codes."""
        return [*_LINKS, *(path for path in self.records if path not in _LINKS)]

    @cached_property
    def _pieces(self) -> list[tuple[int, ArrayRecord]]:
        return [
            (code, ArrayRecord(found.path, found.shape, found.dtype, found.dims, (piece,)))
            for code, path in enumerate(self.names)
            if path in self.records
            for found in [self.records[path]]
            for piece in found.pieces
        ]

    @cached_property
    def _asked(self) -> ShufflePlan:
        columns = (Column("column", "int64"), Column("list", "uint8"), Column("number", "int64"))
        shuffle = Shuffle(f"asked{self.name}", self.sizes.num_vertices, columns, self.sizes.num_blocks)
        pairs = sum(_num_pairs(path, record) for path, record in self.records.items())
        return ShufflePlan(self.writer, shuffle, len(self._pieces), 17 * pairs, pairs)

    @cached_property
    def entries(self) -> ShufflePlan | None:
        """Plan that brings the entries of the training pairs to their places; None if no training pairs are given."""
        train = self.records.get("train/pair")
        if train is None or self.relation:
            return None
        dtype, total = self.weight_dtype or "uint8", train.shape[0]
        shuffle = Shuffle(f"entries{self.name}", total, (Column("weight", dtype),), max(1, total // (1 << 20)))
        size = np.dtype(dtype).itemsize
        return ShufflePlan(self.writer, shuffle, self.sizes.num_blocks, size * total, total)

    @cached_property
    def held(self) -> dict[str, ShufflePlan]:
        """Plans that bring the positions of the edges of a relation that pairs hold out to an array for each split."""
        if not (self.relation and self.holds_out):
            return {}
        column, blocks = (Column("edge", "int64"),), self.sizes.num_blocks
        return {
            split: ShufflePlan.unmerged(self.writer, Shuffle(f"held/{split}", 1, column, 1), blocks)
            for split in LINK_SPLITS
            if split != "train"
        }

    def held_arrays(self, totals: Mapping[str, int]) -> list[PairArray]:
        """The arrays of :attr:`held`.

        Args:
            totals: number of edges that the pairs of each split hold out.
        """
        return [
            PairArray(f"{split}/held_out", (totals[split],), "int64", ("held_out",), plan, ("edge",))
            for split, plan in self.held.items()
        ]

    def phases(self) -> list[Phase]:
        """All phases."""
        entries = self.entries
        merges = [] if entries is None else entries.merges("merge entries")
        return [self._asking(), *self._asked.merges("merge pairs"), self.answering, *merges]

    def _asking(self) -> Phase:
        tasks = []
        for number, (code, record) in enumerate(self._pieces):
            split, _, name = record.path.partition("/")
            (piece,) = record.pieces
            num_pairs = (piece.stop - piece.start) * (1 if name != "negative" else record.shape[1])
            pairs = self.records[f"{split}/pair"] if name == "negative" else None
            numbers = _ROUTED_CHUNKS * CHUNK_BYTES // (8 if name == "negative" else 16)
            needs = Needs(
                16 * num_pairs, 25 * num_pairs, memory=WRITING_BYTES + _ROUTED_BYTES * min(num_pairs, numbers)
            )
            how = record, pairs, code, self.sizes.symmetric, self.reverse
            where = self._asked.shuffle, self._asked.lane(number)
            name = f"ask{self.name}/{number:05d}"
            tasks.append(AskTask(self.writer, name, needs, self.writer.path, *how, *where, self.has_loops))
        return Phase("pairs by row", ask, tasks, "pairs", files=(self._asked.files,))

    @cached_property
    def answering(self) -> Phase:
        """The phase that looks pairs up."""
        tasks, sizes, entries = [], self.sizes, self.entries
        rows = [0, *np.cumsum(sizes.block_rows).tolist()]
        entry_bytes = 2 * sizes.entry_bytes + 1 + (_HELD_BYTES if self.held else 0)
        memory = RANGE_BYTES + entry_bytes * self.writer.scratch.step_entries + _PAIR_BYTES * LOOKED_UP
        for number, nnz in enumerate(sizes.block_nnz):
            num_bytes = sizes.entry_bytes * nnz + 8 * (sizes.block_rows[number] + 1)
            needs = Needs(num_bytes, 0, self._asked.opens((rows[number], rows[number + 1])), memory)
            answered = None if entries is None else (entries.shuffle, entries.lane(number))
            how = self.graph, number, len(self.names), self.holds_out, self._asked.shuffle, answered, self.memory
            plans = {_LINKS.index(f"{split}/pair"): plan for split, plan in self.held.items()}
            held = {code: (plan.shuffle, plan.lane(number)) for code, plan in plans.items()}
            tasks.append(AnswerTask(self.writer, f"answer{self.name}/{number:05d}", needs, *how, self.relation, held))
        files = (*(() if entries is None else (entries.files,)), *(plan.files for plan in self.held.values()))
        return Phase("look up pairs", answer, tasks, "pairs", (self._asked.read_files,), (*files, WorkFiles()))

    def arrays(self) -> list[PairArray]:
        """The entries of the pairs for training, if these are given."""
        if self.entries is None:
            return []
        total, dtype = self.records["train/pair"].shape[0], self.weight_dtype or "uint8"
        return [PairArray(self.weight, (total,), dtype, ("pair",), self.entries, ("weight",), 0, True)]

    def found(self) -> LookedUp:
        """Facts about the pairs, after the phases have run."""
        facts = [record.facts for record in records_of(self.answering, self.writer)]
        edges = np.sum([each["edges"] for each in facts], axis=0).tolist()
        shown = next((each["example"] for each in facts if each["example"] is not None), None)
        names = self.names
        example = None if shown is None else (shown[0], shown[1], names[shown[2]], names[shown[3]])
        counted = {name: count for name, count in zip(names, edges, strict=True) if name in self.records}
        held_out = np.sum([each["held_out"] for each in facts], axis=0).tolist() if self.held else []
        return LookedUp(
            counted, sum(each["shared"] for each in facts), example, dict(zip(self.held, held_out, strict=True))
        )


def _num_pairs(path: str, record: ArrayRecord) -> int:
    return record.shape[0] * (record.shape[1] if path.endswith("/negative") else 1)


def held_out_edges(found: LookedUp, splits: Sequence[str]) -> int:
    """Number of pairs of the splits that are edges."""
    return sum(found.edges[f"{split}/pair"] for split in splits)
