"""DIMACS graph files: the arcs of shortest paths (.gr) and the edges of graphs to be colored (.col).

    c a comment                    c a comment
    p sp VERTICES ARCS             p edge VERTICES EDGES, or p col
    a SOURCE TARGET WEIGHT         e ONE OTHER

Ids start from 1 in the file and from 0 in the graph. An arc has a direction; an edge has none, and a file may list it
in either direction or in both. Lines that begin with n, d, v or x, which describe vertices and the generator of a graph
to be colored, are left out. The lines of large files are counted before they are read, in ranges, to compare their
number with the one that is stated. (9th DIMACS Implementation Challenge: Shortest Paths, 2005; DIMACS, Clique and
Coloring Problems Graph Format, 1993.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.format import WEIGHTS, Format
from gnnloom.pipeline.sources.parsers.numerals import (
    HASH,
    SPACE,
    is_blank,
    is_count,
    is_end,
    next_line,
    skip_blanks,
)
from gnnloom.pipeline.sources.reading.files import SourceFile, open_files
from gnnloom.pipeline.sources.reading.lines import (
    BLOCK_BYTES,
    LONGEST_LINE,
    RANGE_BYTES,
    bad_line,
    check_ends_with_feed,
    count_data_lines,
    counts_by_file,
    lines_below,
    ranges_below,
)
from gnnloom.pipeline.sources.reading.parse import parse_from_one
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange
from gnnloom.pipeline.sources.understood import UNREAD, Understood
from gnnloom.storage.errors import InputError
from gnnloom.storage.kernels import kernel
from gnnloom.storage.wording import counted

#: The letter of the lines of arcs or edges, for each word after the p.
_LETTERS: Final = {"sp": "a", "edge": "e", "edges": "e", "col": "e"}
#: Letters of lines that are left out: in all files, and in files of edges.
_COMMENTS, _OTHERS = b"c", b"ndvx"


@dataclass(frozen=True)
class DimacsHeader:
    """The line of a file that states its size.

    Attributes:
        letter: the letter with which the lines of arcs or edges begin: ``a`` or ``e``.
        weighted: whether the first such line has a weight.
        data_at: offset of the next line in the decompressed contents.
    """

    file: SourceFile
    letter: str
    num_vertices: int
    num_edges: int
    weighted: bool
    data_at: int

    @property
    def has_direction(self) -> bool:
        """Whether the lines are arcs rather than edges."""
        return self.letter == "a"

    def counted(self, number: int) -> str:
        """A number of arcs or edges, for people."""
        return counted(number, "arc" if self.has_direction else "edge")


@dataclass(frozen=True)
class DimacsEdges:
    """Edges from DIMACS files; implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`.

    Attributes:
        weights: whether edges have weights.
        once: give each edge once, for a graph that stores both directions of all edges.
        is_counted: whether the lines of files with several ranges were counted, and match the numbers that the files
            state.
        range_bytes: size of a range.
        block_bytes: number of bytes parsed at a time.
    """

    graphs: tuple[DimacsHeader, ...]
    weights: bool = False
    once: bool = False
    is_counted: bool = False
    range_bytes: int = RANGE_BYTES
    block_bytes: int = BLOCK_BYTES

    @classmethod
    def open(cls, locations: Sequence[str], *, weights: bool = False, undirected: bool = False) -> DimacsEdges:
        """Find the files and read what they state.

        Args:
            undirected: the graph will store both directions of every edge.

        Raises:
            NotFoundError: a file does not exist.
            InputError: a file does not state its size, has no edges or lacks the weights; or weights are wanted for a
                directed graph, and edges have no direction.
        """
        graphs = tuple(read_header(file) for file in open_files(locations))
        for graph in graphs:
            if weights and not graph.weighted:
                raise InputError(f"{graph.file.location}: the file has no edge weights; leave out `--weights`")
            # An edge that is listed in both directions would get twice its weight.
            if weights and not (graph.has_direction or undirected):
                raise InputError(f"{graph.file.location}: the edges of this file have no direction; add `--undirected`")
        return cls(graphs, weights, undirected)

    def identity(self) -> dict[str, Any]:
        files = [graph.file.identity() for graph in self.graphs]
        return {"format": "dimacs", "weights": self.weights, "once": self.once, "files": files}

    @property
    def num_edges(self) -> int:
        """Number of edges that :meth:`read` gives, if there are no loops."""
        return sum(graph.num_edges * (2 if self._mirrors(graph) else 1) for graph in self.graphs)

    def _mirrors(self, graph: DimacsHeader) -> bool:
        return not (graph.has_direction or self.once)

    def num_vertices(self) -> int | None:
        return max(graph.num_vertices for graph in self.graphs)

    def ranges(self) -> Sequence[SourceRange]:
        return ranges_below(self.graphs, self.range_bytes)

    def understood(self) -> list[Understood]:
        """Describes how each file is read, judging by its first lines."""
        return [
            Understood(
                graph.file.location,
                "dimacs",
                {
                    "vertices": graph.num_vertices,
                    "edges": graph.num_edges,
                    "directed": graph.has_direction,
                    "has_weights": graph.weighted,
                },
                (
                    f"DIMACS, {graph.counted(graph.num_edges)} of {counted(graph.num_vertices, 'vertex')}"
                    + (", with weights" if graph.weighted else ", without weights"),
                    "the vertices 1, 2 and so on become 0, 1 and so on",
                    UNREAD if graph.weighted and not self.weights else "",
                ),
                flags=(
                    *(("--weights",) if graph.weighted and not self.weights else ()),
                    *(() if graph.has_direction or self.once else ("--undirected",)),
                ),
            )
            for graph in self.graphs
        ]

    def surveys(self) -> Sequence[SourceRange]:
        return [] if self.is_counted else [span for span in self.ranges() if span.stop >= 0]

    def survey(self, span: SourceRange) -> list[int]:
        return [count_data_lines(self._blocks(span))]

    def with_surveys(self, found: Sequence[Sequence[int]]) -> DimacsEdges:
        for number, edges in counts_by_file(self.surveys(), found).items():
            _check_count(self.graphs[number], edges)
        return replace(self, is_counted=True)

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        graph, found = self.graphs[span.file], 0
        check_ends_with_feed(graph.file)
        read = {"weights": self.weights, "ignores_weights": graph.weighted and not self.weights}
        for offset, block in self._blocks(span):
            source, target, weight = parse_from_one(graph.file, offset, block, graph.num_vertices, **read)
            found += len(source)
            yield EdgeChunk(source, target, weight)
            if self._mirrors(graph):
                off = source != target
                yield EdgeChunk(target[off], source[off], None if weight is None else weight[off])
        if span.stop < 0:
            _check_count(graph, found)

    def _blocks(self, span: SourceRange) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Offsets and whole lines of a range: of edges without their letters, and of comments that begin with #."""
        graph = self.graphs[span.file]
        left_out = np.frombuffer(_COMMENTS if graph.has_direction else _COMMENTS + _OTHERS, np.uint8)
        for offset, block in lines_below(graph, span, self.block_bytes):
            text = block.copy()
            wrong = _replace_letters(text, ord(graph.letter), left_out)
            if wrong >= 0:
                what = "an arc, as in `a 1 2 7`" if graph.has_direction else "an edge, as in `e 1 2`"
                raise bad_line(graph.file, offset + wrong, f"expected {what}, or a comment, as in `c text`")
            yield offset, text


@kernel
def _replace_letters(text: Any, letter: int, left_out: Any) -> int:
    """Replace the letter that begins each line, in place: of an edge by a blank, of a line that is left out by #.

    Args:
        text: (num_bytes,) uint8, whole lines.
        letter: first byte of the lines of edges; a blank follows.
        left_out: (num_letters,) uint8 first bytes of the lines that are left out.

    Returns:
        Position of the first line that begins in another way; -1 if there is none.
    """
    at = 0
    while at < len(text):
        line = at
        at = skip_blanks(text, at)
        if not is_end(text, at):
            is_other = False
            for byte in left_out:
                is_other |= text[at] == byte
            if is_other:
                text[at] = HASH
            elif text[at] == letter and is_blank(text[at + 1]):
                text[at] = SPACE
            else:
                return line
        at = next_line(text, at)
    return -1


def _check_count(graph: DimacsHeader, found: int) -> None:
    if found != graph.num_edges:
        raise InputError(
            f"{graph.file.location}: {graph.counted(found)}, the line that begins with p states {graph.num_edges:,};"
            " the file is truncated or damaged"
        )


def read_header(file: SourceFile) -> DimacsHeader:
    """Read up to the line that states the size, and the first arc or edge.

    Raises:
        InputError: another line comes first, or states something else or no edges.
    """
    at = 0
    with file.open() as stream:
        while (line := stream.readline(LONGEST_LINE)) and (not line.strip() or line.lstrip()[:1] == b"c"):
            at += len(line)
        words = line.decode("latin-1").split()
        if len(words) != 4 or words[0] != "p" or words[1] not in _LETTERS or not all(map(is_count, words[2:])):
            raise bad_line(
                file,
                at,
                "expected `p sp VERTICES ARCS`, `p edge VERTICES EDGES` or `p col VERTICES EDGES`; if the lines below"
                " are edges without a letter, as in files of PACE, remove this line and the comments, and give"
                " `--format snap`",
            )
        letter, num_vertices, num_edges = _LETTERS[words[1]], int(words[2]), int(words[3])
        data_at = at + len(line)
        while (line := stream.readline(LONGEST_LINE)) and line.strip()[:1] in _COMMENTS + _OTHERS:
            pass
    if not num_edges:
        raise InputError(f"{file.location}: the file has no edges")
    return DimacsHeader(file, letter, num_vertices, num_edges, len(line.split()) > 3, data_at)


FORMAT = Format(
    name="dimacs",
    order=65,
    help="DIMACS: arcs of shortest paths, or edges of a graph to be colored",
    open_edges=DimacsEdges.open,
    options=(WEIGHTS,),
    pattern=rb"(c[^\n]*\n\s*)*p\s+(sp|edges?|col)\s+\d+\s+\d+",
    suffixes=("gr", "col"),
    doubles=True,
)
