"""METIS graph files: a line of neighbors per vertex, with each edge in the lines of both of its ends.

The header is "n m [fmt [ncon]]"; fmt is up to three digits for vertex sizes, vertex weights and edge weights; only the
edge weights are read. Ids start from 1, and lines that begin with ``%`` are comments. A line may be longer than any
buffer, so the parser works byte by byte and keeps its state between blocks. The number of a line is its vertex, so the
lines of a large file are counted before its ranges are read. (METIS 5.1.0 manual, section 4.1.1.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.format import WEIGHTS, Format
from gnnloom.pipeline.sources.parsers.numerals import (
    BEYOND,
    FEED,
    FLOAT32_LIMIT,
    FRACTION,
    LOWER,
    MINUS,
    NEGATIVE,
    NO_ID,
    NO_NUMBER,
    NOT_FINITE,
    PERCENT,
    PLUS,
    POINT,
    REASONS,
    RETURN,
    SAFE_DIGITS,
    TOO_FEW,
    TOO_LARGE,
    TOO_MANY,
    ZERO,
    is_blank,
    is_count,
    scale,
)
from gnnloom.pipeline.sources.reading.files import SourceFile, open_files
from gnnloom.pipeline.sources.reading.lines import (
    RANGE_BYTES,
    bad_line,
    check_ends_with_feed,
    count_uncommented,
    first_line,
    ranges_below,
)
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange
from gnnloom.pipeline.sources.understood import UNREAD, Understood
from gnnloom.storage.errors import InputError
from gnnloom.storage.kernels import kernel
from gnnloom.storage.wording import counted

#: Number of bytes parsed at a time.
BLOCK_BYTES = 2 << 20
#: The least number of 18 digits, and the odd number that an exponent of ten is multiplied with in a hash.
_LEAST_LONG, _ODD = 10**17, 0x5851F42D4C957F2D

# Elements of the parser's state, which it keeps between blocks.
VERTEX, TOKEN, NUMBER, DIGITS, MODE, LINE_AT, TARGET, UPWARD, DOWNWARD, LOOPS, BALANCE = range(11)
# Of a weight: digits after its point, whether it is negative, its exponent after an "e", and whether that is negative.
DECIMALS, MINUS_SIGN, EXPONENT, EXPONENT_SIGN, STATE_SIZE = range(11, 16)
# Values of MODE: within the digits of an integer, a comment, or a weight's sign and decimals, or its exponent.
_INTEGER, _COMMENT, _DECIMAL, _POWER = range(4)
#: Exponents this large mean 0 or infinity; the limit prevents overflow.
_MOST_EXPONENT = 100_000
#: Bytes of a file that is read once more to name an edge that is in one line only.
_MOST_NAMED = 64 << 20


@dataclass(frozen=True)
class MetisHeader:
    """The first line of a file.

    Attributes:
        skipped: count of numbers before the neighbors in each line: the vertex's size and weights.
        weighted: whether the weight of the edge follows each neighbor.
        data_at: offset of the next line.
    """

    file: SourceFile
    num_vertices: int
    num_edges: int
    skipped: int
    weighted: bool
    data_at: int


@dataclass(frozen=True)
class MetisEdges:
    """Edges from METIS files; implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`.

    Attributes:
        graphs: the header of each file.
        weights: whether edges have weights.
        once: give each edge once, for a graph that stores both directions of all edges.
        first_vertices: for each of :meth:`ranges`, the vertex of the first line that begins in it; empty until the
            lines are counted.
        is_checked: whether every edge is known to be in the lines of both of its ends.
        range_bytes: size of a range.
        block_bytes: number of bytes parsed at a time.
    """

    graphs: tuple[MetisHeader, ...]
    weights: bool = False
    once: bool = False
    first_vertices: tuple[int, ...] = ()
    is_checked: bool = False
    range_bytes: int = RANGE_BYTES
    block_bytes: int = BLOCK_BYTES

    @classmethod
    def open(cls, locations: Sequence[str], *, weights: bool = False, undirected: bool = False) -> MetisEdges:
        """Find the files and read their headers.

        Args:
            undirected: the graph will store both directions of every edge.

        Raises:
            NotFoundError: a file does not exist.
            InputError: a header is invalid, or a file has no edges or lacks the weights.
        """
        graphs = tuple(read_header(file) for file in open_files(locations))
        for graph in graphs:
            if weights and not graph.weighted:
                raise InputError(f"{graph.file.location}: the file has no edge weights; leave out `--weights`")
        return cls(graphs, weights, undirected)

    def identity(self) -> dict[str, Any]:
        files = [graph.file.identity() for graph in self.graphs]
        return {"format": "metis", "weights": self.weights, "once": self.once, "files": files}

    @property
    def num_edges(self) -> int:
        """Number of edges that :meth:`read` gives, not counting loops."""
        return sum(graph.num_edges for graph in self.graphs) * (1 if self.once else 2)

    def num_vertices(self) -> int | None:
        return max(graph.num_vertices for graph in self.graphs)

    def ranges(self) -> Sequence[SourceRange]:
        # Until the lines are counted, only a whole file can be read.
        return self._cut() if self.is_checked else [SourceRange(number, 0, -1) for number in range(len(self.graphs))]

    def _cut(self) -> list[SourceRange]:
        return ranges_below(self.graphs, self.range_bytes)

    def understood(self) -> list[Understood]:
        """Describes how each file is read, judging by its first line."""
        return [
            Understood(
                graph.file.location,
                "metis",
                {"vertices": graph.num_vertices, "edges": graph.num_edges, "has_weights": graph.weighted},
                (
                    f"METIS, {counted(graph.num_edges, 'undirected edge')} of {counted(graph.num_vertices, 'vertex')}"
                    + (", with weights" if graph.weighted else ", without weights"),
                    f"{counted(graph.skipped, 'number')} before the neighbors in each line, not read"
                    if graph.skipped
                    else "",
                    UNREAD if graph.weighted and not self.weights else "",
                ),
                flags=(
                    *(("--weights",) if graph.weighted and not self.weights else ()),
                    *(() if self.once else ("--undirected",)),
                ),
            )
            for graph in self.graphs
        ]

    def surveys(self) -> Sequence[SourceRange]:
        """All ranges, twice: to count their lines, then their edges; none if every file is one range."""
        ranges = self._cut()
        return [] if self.is_checked or len(ranges) == len(self.graphs) else ranges

    def survey(self, span: SourceRange) -> list[int]:
        graph = self.graphs[span.file]
        if not self.first_vertices:
            total, is_inside, is_comment = 0, False, False
            for _, block in _blocks(graph, span, self.block_bytes):
                count, is_inside, is_comment = count_uncommented(block, is_inside, is_comment)
                total += count
            # Blank lines after the last vertex are ignored; the next round refuses other lines.
            return [total]
        state = self._state(span)
        for _ in self._chunks(span, state):
            pass
        # With the lines, the totals that _check_totals compares.
        lines = int(state[VERTEX]) - self._first_vertex(span)
        return [lines, int(state[UPWARD]), int(state[DOWNWARD]), int(state[LOOPS]), int(state[BALANCE])]

    def with_surveys(self, found: Sequence[Sequence[int]]) -> MetisEdges:
        spans = self.surveys()
        of_files = [
            [counts for span, counts in zip(spans, found, strict=True) if span.file == number]
            for number in range(len(self.graphs))
        ]
        if not self.first_vertices:
            # Files of one range start from vertex 0 as well.
            firsts = (
                first for counts in of_files for first in list(accumulate((c for (c,) in counts), initial=0))[:-1]
            )
            return replace(self, first_vertices=tuple(firsts))
        for number, counts in enumerate(of_files):
            self._check_totals(number, *(sum(column) for column in zip(*counts, strict=True)))
        return replace(self, is_checked=True)

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        state = self._state(span)
        yield from self._chunks(span, state)
        if span.stop < 0:
            self._check_totals(span.file, *(int(state[count]) for count in (VERTEX, UPWARD, DOWNWARD, LOOPS, BALANCE)))

    def _check_totals(self, number: int, lines: int, upward: int, downward: int, loops: int, balance: int) -> None:
        graph = self.graphs[number]
        where = graph.file.location
        if lines < graph.num_vertices:
            raise InputError(
                f"{where}: {counted(lines, 'line')}, expected one for each of {graph.num_vertices:,} vertices"
            )
        # Sums of ranges may have wrapped around.
        if upward != downward or balance % (1 << 64):
            raise InputError(
                f"{where}: not every edge is in the lines of both of its ends, with one weight{self._lonely(number)};"
                " directed edges need a table with an edge per line"
            )
        if not upward <= graph.num_edges <= upward + loops:
            raise InputError(
                f"{where}: {counted(upward, 'edge')}, the header states {graph.num_edges:,}; the file is truncated or"
                " damaged"
            )

    def _lonely(self, number: int) -> str:
        """The first edge of a file that is in one line only; empty if the file is large."""
        graph = self.graphs[number]
        if graph.file.most_bytes is None or graph.file.most_bytes > _MOST_NAMED:
            return ""
        source = replace(self, once=False, weights=graph.weighted, first_vertices=())
        span = SourceRange(number, graph.data_at, -1)
        chunks = list(source._chunks(span, source._state(span)))  # noqa: SLF001 - the same class
        seen: dict[tuple[int, int], float] = {}
        for chunk in chunks:
            weight = np.zeros(len(chunk.source)) if chunk.weight is None else chunk.weight
            seen |= zip(zip(chunk.source.tolist(), chunk.target.tolist(), strict=True), weight.tolist(), strict=True)
        lonely = ((a, b) for (a, b), weight in seen.items() if seen.get((b, a)) != weight)
        found = next(lonely, None)
        return f" (the line of vertex {found[0] + 1:,} has {found[1] + 1:,})" if found else ""

    def _state(self, span: SourceRange) -> NDArray[np.int64]:
        state = np.zeros(STATE_SIZE, np.int64)
        state[VERTEX], state[LINE_AT] = self._first_vertex(span), self.graphs[span.file].data_at
        return state

    def _chunks(self, span: SourceRange, state: NDArray[np.int64]) -> Iterator[EdgeChunk]:
        graph, is_first = self.graphs[span.file], True
        for offset, block in _blocks(graph, span, self.block_bytes):
            # A range begins with the first line that begins in it.
            if is_first and span.stop >= 0:
                state[LINE_AT], is_first = offset, False
            yield self._parse(graph, offset, block, state)

    def _first_vertex(self, span: SourceRange) -> int:
        return self.first_vertices[self._cut().index(span)] if self.first_vertices else 0

    def _parse(self, graph: MetisHeader, offset: int, block: NDArray[np.uint8], state: NDArray[np.int64]) -> EdgeChunk:
        # A number takes at least a digit and a separator, and one that began in the previous block may end in this
        # one.
        most = len(block) // 2 + 1
        source, target = np.empty(most, np.int64), np.empty(most, np.int64)
        weight = np.empty(most, np.float32)
        count, wrong = parse_neighbors(
            block, offset, graph.num_vertices, graph.skipped, graph.weighted, self.once, state, source, target, weight
        )
        if wrong:
            what = f" (the line of vertex {state[VERTEX] + 1:,} of {graph.num_vertices:,})"
            raise bad_line(graph.file, int(state[LINE_AT]), REASONS[wrong] + what)
        return EdgeChunk(source[:count], target[:count], weight[:count] if self.weights else None)


def _blocks(graph: MetisHeader, span: SourceRange, block_bytes: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """The lines that begin in a range, in blocks that may end within a line; the last one ends with a line feed."""
    check_ends_with_feed(graph.file)
    with graph.file.open() as stream:
        if span.stop >= 0:
            yield from _blocks_between(stream, span, graph.data_at, block_bytes)
            return
        offset, last = 0, b"\n"
        while data := stream.read(block_bytes):
            skipped = min(max(0, graph.data_at - offset), len(data))
            yield offset + skipped, np.frombuffer(data, np.uint8)[skipped:]
            offset, last = offset + len(data), data[-1:]
        # The checksum of compressed data shows that they are complete, so their last line need not.
        if last != b"\n":
            yield offset, np.frombuffer(b"\n", np.uint8)


def _blocks_between(
    stream: BinaryIO, span: SourceRange, data_at: int, block_bytes: int
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    start = span.start if span.start <= data_at else _line_after(stream, span.start - 1, block_bytes)
    # A line belongs to the range in which it begins, however long it is.
    end = _line_after(stream, span.stop - 1, block_bytes)
    stream.seek(start)
    while start < end and (data := stream.read(min(block_bytes, end - start))):
        yield start, np.frombuffer(data, np.uint8)
        start += len(data)


def _line_after(stream: BinaryIO, at: int, block_bytes: int) -> int:
    """Offset of the line after the first line feed at ``at`` or later; the end of the file if there is none."""
    stream.seek(at)
    while data := stream.read(block_bytes):
        feed = data.find(b"\n")
        if feed >= 0:
            return at + feed + 1
        at += len(data)
    return at


def read_header(file: SourceFile) -> MetisHeader:
    """Read the first line.

    Raises:
        InputError: the line is not a header, or states no edges.
    """
    with file.open() as stream:
        at, line = first_line(stream)
    words = line.decode("latin-1").split()
    if not 2 <= len(words) <= 4 or not all(map(is_count, words)):
        raise bad_line(
            file, at, "expected the numbers of vertices and edges, optionally a format and a number of weights"
        )
    num_vertices, num_edges = int(words[0]), int(words[1])
    flags = words[2].zfill(3) if len(words) > 2 else "000"
    if len(flags) > 3 or set(flags) - {"0", "1"}:
        raise bad_line(file, at, f"expected a format of up to three digits 0 or 1, found {words[2]}")
    num_weights = int(words[3]) if len(words) > 3 else 1
    skipped = (flags[0] == "1") + (num_weights if flags[1] == "1" else 0)
    if not num_edges:
        raise InputError(f"{file.location}: the file has no edges")
    return MetisHeader(file, num_vertices, num_edges, skipped, flags[2] == "1", at + len(line))


@kernel
def parse_neighbors(  # noqa: PLR0912 - one step per kind of byte
    text: Any,
    offset: int,
    num_vertices: int,
    skipped: int,
    weighted: bool,
    once: bool,
    state: Any,
    source: Any,
    target: Any,
    weight: Any,
) -> tuple[int, int]:
    """Parse a block that may begin and end anywhere, even within a number.

    Args:
        text: (num_bytes,) uint8.
        offset: offset of the block in the file's contents.
        skipped: count of numbers before the neighbors in each line.
        weighted: whether the weight of the edge follows each neighbor.
        once: give only edges to neighbors that are not below the line's own vertex.
        state: (16,) int64, kept from block to block; VERTEX and LINE_AT locate an error.
        source, target: (max_edges,) int64, filled with the ids.
        weight: (max_edges,) float32, filled with the weights, if any.

    Returns:
        Number of edges, and the fault (0: none).
    """
    count, wrong = 0, 0
    # One byte per step: a token may continue in the next block, so no step looks ahead.
    for at in range(len(text)):
        byte: Any = np.int64(text[at])
        mode = state[MODE]
        if mode == _INTEGER and ZERO <= byte <= ZERO + 9:
            state[NUMBER] = state[NUMBER] * 10 + (byte - ZERO)
            state[DIGITS] += 1
            # Refused before the number could overflow, however many digits the token has in later blocks.
            if state[DIGITS] > SAFE_DIGITS:
                return count, TOO_LARGE
        elif mode == _COMMENT:
            if byte == FEED:
                state[MODE] = _INTEGER
                state[LINE_AT] = offset + at + 1
        elif byte == FEED or byte == RETURN or is_blank(byte):  # noqa: PLR1714, SIM109 - faster than a tuple in numba
            if state[DIGITS] or mode:
                value, code = float(state[NUMBER]), state[NUMBER]
                if mode:
                    # An exponent without digits, or a sign or point without any.
                    if state[DIGITS] == 0 or (mode == _POWER and abs(state[EXPONENT_SIGN]) != 1):
                        return count, NO_NUMBER
                    value, code = _end_weight(state)
                    if not abs(value) < FLOAT32_LIMIT:
                        return count, NOT_FINITE
                rules = num_vertices, skipped, weighted, once
                emitted, wrong = _end_token(*rules, state, value, code, count, source, target, weight)
                count += emitted
            if byte == FEED and not wrong:
                wrong = _end_line(num_vertices, skipped, weighted, state, offset + at + 1)
            if wrong:
                return count, wrong
        elif mode:
            wrong = _more_of_weight(byte, state)
            if wrong:
                return count, wrong
        elif byte == PERCENT and state[TOKEN] == 0 and state[DIGITS] == 0:
            state[MODE] = _COMMENT
        elif weighted and state[TOKEN] > skipped and (state[TOKEN] - skipped) % 2 == 1:
            state[MODE] = _DECIMAL
            state[DECIMALS] = -1
            wrong = _more_of_weight(byte, state)
            if wrong:
                return count, wrong
        else:
            return count, NEGATIVE if byte == MINUS else FRACTION if byte == POINT else NO_ID
    return count, 0


@kernel
def _more_of_weight(byte: int, state: Any) -> int:
    """Process a byte of a weight that is not an integer; returns the fault (0: none).

    DECIMALS is -1 before the point. EXPONENT_SIGN is 2 after the "e", 3 or -3 after a sign, 1 or -1 after a digit.
    """
    if ZERO <= byte <= ZERO + 9:
        digit = byte - ZERO
        if state[MODE] == _POWER:
            state[EXPONENT] = min(state[EXPONENT] * 10 + digit, _MOST_EXPONENT)
            state[EXPONENT_SIGN] = -1 if state[EXPONENT_SIGN] < 0 else 1
        elif state[DIGITS] < SAFE_DIGITS or not state[NUMBER]:
            # Leading zeros do not use up any of the digits that are kept.
            state[DIGITS] = state[DIGITS] + 1 if state[NUMBER] else 1
            state[NUMBER] = state[NUMBER] * 10 + digit
            state[DECIMALS] += state[DECIMALS] >= 0
        elif state[DECIMALS] < 0:
            return TOO_LARGE
        return 0
    if byte == POINT and state[MODE] == _DECIMAL and state[DECIMALS] < 0:
        state[DECIMALS] = 0
    elif (byte | LOWER) == ord("e") and state[MODE] == _DECIMAL and state[DIGITS]:
        state[MODE], state[EXPONENT_SIGN] = _POWER, 2
    elif (byte == MINUS or byte == PLUS) and state[EXPONENT_SIGN] == 2:  # noqa: PLR1714, SIM109 - as above
        state[EXPONENT_SIGN] = -3 if byte == MINUS else 3
    elif byte == MINUS and state[DECIMALS] < 0 and not state[DIGITS] and not state[MINUS_SIGN]:
        state[MINUS_SIGN] = 1
    else:
        return NO_NUMBER
    return 0


@kernel
def _end_weight(state: Any) -> tuple[float, int]:
    """End a weight that is not an integer; returns it, and its code for hashes, which is the integer if it is one."""
    number = state[NUMBER]
    power = state[EXPONENT] * (-1 if state[EXPONENT_SIGN] < 0 else 1) - max(state[DECIMALS], 0)
    value, power = scale(number, power), power if number else 0
    # Equal numbers get equal codes, however many zeros end them.
    while number and number % 10 == 0 and power < 0:
        number, power = number // 10, power + 1
    while number and power > 0 and number < _LEAST_LONG:
        number, power = number * 10, power - 1
    code = number ^ (power * _ODD)
    is_negative = state[MINUS_SIGN]
    state[MODE], state[DECIMALS], state[MINUS_SIGN] = _INTEGER, 0, 0
    state[EXPONENT], state[EXPONENT_SIGN] = 0, 0
    return (-value, ~code) if is_negative else (value, code)


@kernel
def _end_token(
    num_vertices: int,
    skipped: int,
    weighted: bool,
    once: bool,
    state: Any,
    value: float,
    code: int,
    count: int,
    source: Any,
    target: Any,
    weight: Any,
) -> tuple[int, int]:
    """Process a complete number; returns how many edges it completes (0 or 1) and the fault (0: none).

    Args:
        value, code: the number as a weight, and what stands for it in hashes.
    """
    number, position = state[NUMBER], state[TOKEN] - skipped
    state[NUMBER], state[DIGITS] = 0, 0
    state[TOKEN] += 1
    if state[VERTEX] >= num_vertices:
        return 0, TOO_MANY
    if position < 0:
        return 0, 0
    # With weights, neighbors and weights alternate.
    if not weighted or position % 2 == 0:
        if number < 1 or number > num_vertices:
            return 0, BEYOND
        state[TARGET] = number - 1
        if weighted:
            return 0, 0
    vertex, neighbor = state[VERTEX], state[TARGET]
    # Every edge must occur once upward and once downward, with one weight: counts and sums of hashes are compared.
    if neighbor != vertex:
        mixed = _mixed(min(vertex, neighbor), max(vertex, neighbor), code if weighted else 0)
        state[BALANCE] += mixed if neighbor > vertex else -mixed
    state[LOOPS] += neighbor == vertex
    state[UPWARD] += neighbor > vertex
    state[DOWNWARD] += neighbor < vertex
    # Counted above and left out here: the totals still show whether every edge occurs in both lines.
    if once and neighbor < vertex:
        return 0, 0
    source[count], target[count], weight[count] = vertex, neighbor, value
    return 1, 0


@kernel
def _mixed(low: int, high: int, weight: int) -> Any:
    """An int64 hash of an edge and its weight; each step is the finalizer of SplitMix64 (Steele et al. 2014)."""
    value = np.uint64(weight)
    for part in (low, high):
        value ^= np.uint64(part) + np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        value ^= value >> np.uint64(31)
    return np.int64(value)


@kernel
def _end_line(num_vertices: int, skipped: int, weighted: bool, state: Any, next_at: int) -> int:
    """Go to the next vertex; returns the fault of the line (0: none)."""
    if state[VERTEX] < num_vertices:
        position = state[TOKEN] - skipped
        if position < 0 or (weighted and position % 2 == 1):
            return TOO_FEW
        state[VERTEX] += 1
    state[TOKEN] = 0
    state[LINE_AT] = next_at
    return 0


FORMAT = Format(
    name="metis",
    order=60,
    help="a line of neighbors per vertex",
    open_edges=MetisEdges.open,
    options=(WEIGHTS,),
    suffixes=("graph", "metis"),
    doubles=True,
)
