"""N-Triples: RDF statements of a subject, a predicate and an object, one per line.

An edge leads from the subject to the object, which are called by their IRI or by the label of their blank node.
Statements whose object is a literal have no edge; they are counted and left out. Labels of blank nodes are distinct
within a file, so labels of further files end with ``@`` and the number of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.format import COLUMNS, Format, column_names
from gnnloom.pipeline.sources.names import HINT, NameChunk, Names
from gnnloom.pipeline.sources.parsers.statements import LITERAL, REASONS, TYPE, parse_statements
from gnnloom.pipeline.sources.reading.files import SourceFile, open_files
from gnnloom.pipeline.sources.reading.lines import BLOCK_BYTES, RANGE_BYTES, bad_line, byte_ranges
from gnnloom.pipeline.sources.reading.lines import line_at as read_line
from gnnloom.pipeline.sources.reading.text_layout import row_blocks
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange
from gnnloom.pipeline.sources.understood import SHOWN_ROWS, Understood
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option
from gnnloom.storage.wording import did_you_mean

#: Name of the format.
NTRIPLES: Final = "ntriples"
#: Columns of all statements between vertices.
LINKS: Final = ("subject", "predicate", "object")
#: Columns of statements with the predicate rdf:type.
TYPES: Final = ("instance", "class")
#: Choices for rdf:type.
RDF_TYPES: Final = ("relation", "type", "first")
#: The part of a statement that each column is.
_PART: Final = {"subject": 0, "predicate": 1, "object": 2, "instance": 0, "class": 2}
#: Bytes of the shortest statement, ``_:a<b>_:c.``, and its line feed.
_SHORTEST: Final = 11
#: Bytes at the beginning of a file that are read to show its first statements.
_SHOWN_BYTES: Final = 64 << 10
_LITERAL: Final = re.compile(r'"(?:[^"\\]|\\.)*"(?:@[\w-]+|\^\^<[^>]*>)?')


@dataclass(frozen=True)
class Statements:
    """Two columns of the statements of some files.

    Implements :class:`~gnnloom.pipeline.sources.names.NamedEdgeSource` and
    :class:`~gnnloom.pipeline.sources.source.Surveyed`.

    Attributes:
        files: local uncompressed files are read in ranges of ``range_bytes``, each other file as a whole.
        columns: the columns of the sources and the targets: two of :data:`LINKS`, or two of :data:`TYPES`.
        rdf_type: meaning of statements with the predicate rdf:type, which are edges only for ``relation``.
        literals: number of statements whose object is a literal; None before they are counted.
        range_bytes: size of a range.
        block_bytes: number of bytes parsed at a time.
    """

    files: tuple[SourceFile, ...]
    columns: tuple[str, str]
    rdf_type: str = RDF_TYPES[0]
    literals: int | None = None
    range_bytes: int = RANGE_BYTES
    block_bytes: int = BLOCK_BYTES

    @classmethod
    def open(
        cls, locations: Sequence[str], *, columns: str | Sequence[str] = (), rdf_type: str = RDF_TYPES[0]
    ) -> Statements:
        """Find the files.

        Args:
            columns: columns of the sources and targets of edges; a text separates them by commas.
            rdf_type: one of :data:`RDF_TYPES`.

        Raises:
            NotFoundError: a file does not exist.
            InputError: the columns are not two of the same statements, or a file is empty.
        """
        files, wanted = open_files(locations), column_names(columns, weights=False)
        if not wanted:
            raise InputError(
                f"{files[0].location}: statements have relations, which a graph without types does not keep; name the"
                " columns subject,object to leave them out, or store them as [[relations]]"
            )
        for name in wanted:
            if name not in _PART:
                raise InputError(f"columns: {did_you_mean(name, list(_PART), 'statements have')}")
        if len(wanted) != 2 or not any(set(wanted) <= set(group) for group in (LINKS, TYPES)):
            raise InputError(
                f"columns {','.join(wanted)}: expected two of {', '.join(LINKS)}, or instance,class for the types"
            )
        for file in files:
            if file.size == 0:
                raise InputError(f"{file.location}: the file is empty; expected a statement per line")
        return cls(files, (wanted[0], wanted[1]), rdf_type)

    def identity(self) -> dict[str, Any]:
        return {
            "format": NTRIPLES,
            "columns": list(self.columns),
            "rdf_type": self.rdf_type,
            "files": [file.identity() for file in self.files],
        }

    def num_vertices(self) -> int | None:
        return None

    def ranges(self) -> Sequence[SourceRange]:
        return [span for number, file in enumerate(self.files) for span in byte_ranges(number, file, self.range_bytes)]

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        """Refuse to read ids as numbers.

        Raises:
            InputError: in any case.
        """
        raise InputError(f"{self.files[span.file].location}: IRIs and blank nodes are names{HINT}")

    @property
    def several_hint(self) -> str:
        """Remedy for a vertex with several types."""
        return "; `--rdf-type first` takes the first one"

    def begins_with_names(self) -> bool:
        """All ids are names."""
        return True

    def as_named(self) -> Statements:
        return self

    def read_names(self, span: SourceRange) -> Iterator[NameChunk]:
        """Read both columns of one range; a ``stop`` of -1 stands for the end of the file.

        Raises:
            InputError: a line is not a statement, a name is too long or is not UTF-8, or compressed data is damaged.
        """
        source, target = (_PART[each] for each in self.columns)
        for parts, _, _ in self._blocks(span, self._wanted):
            if len(parts[0]):
                yield NameChunk(parts[source], parts[target])

    @property
    def _wanted(self) -> NDArray[np.bool_]:
        """(3,) bool the kinds of statements that are read."""
        of_types = self.columns[0] in TYPES
        return np.array([False, not of_types, of_types or self.rdf_type == RDF_TYPES[0]])

    def _blocks(
        self, span: SourceRange, wanted: NDArray[np.bool_], block_bytes: int = 0
    ) -> Iterator[tuple[tuple[Names, Names, Names], NDArray[np.int64], NDArray[np.int64]]]:
        """Parse one range, in blocks of ``block_bytes`` if another size is given.

        Yields:
            Subjects, predicates and objects of some statements of the wanted kinds, (3,) int64 number of all statements
            of each kind, and (num_statements,) int64 offsets of their lines in the contents of the file.
        """
        file, stop = self.files[span.file], None if span.stop < 0 else span.stop
        # Blank nodes of different files are different vertices.
        suffix = np.frombuffer(f"@{span.file + 1}".encode() if span.file else b"", np.uint8)
        for offset, text in row_blocks(file, 0, span.start, stop, block_bytes or self.block_bytes):
            most = len(text) // _SHORTEST + 1
            names = [np.empty(len(text) + most * len(suffix), np.uint8) for _ in LINKS]
            ends, line_at = [np.empty(most + 1, np.int64) for _ in LINKS], np.empty(most, np.int64)
            counts = np.zeros(3, np.int64)
            count, at, wrong = parse_statements(
                text, wanted, suffix, names[0], ends[0], names[1], ends[1], names[2], ends[2], line_at, counts
            )
            parts = tuple(Names(end[: count + 1], name) for name, end in zip(names, ends, strict=True))
            for part, kept in zip(parts, (True, True, not wanted[LITERAL]), strict=True):
                row, reason = part.first_wrong(is_id=False) if kept else (-1, "")
                if row >= 0:
                    raise bad_line(file, offset + int(line_at[row]), reason)
            if wrong:
                raise bad_line(file, offset + at, REASONS[wrong])
            yield (parts[0], parts[1], parts[2]), counts, line_at[:count] + offset

    def id_error(self, span: SourceRange, name: str, ends: Sequence[int], reason: str) -> InputError | None:
        """The error for the first line of a range with an id; None if no line has it.

        Args:
            ends: columns to look at: 0 for sources, 1 for targets.
            reason: what is wrong with the id.
        """
        wanted = name.encode()
        for parts, _, line_at in self._blocks(span, self._wanted):
            columns = [parts[_PART[self.columns[end]]] for end in ends]
            for row, names in enumerate(zip(*columns, strict=True)):
                if wanted in names:
                    return bad_line(self.files[span.file], int(line_at[row]), reason)
        return None

    # Surveys

    def surveys(self) -> Sequence[SourceRange]:
        """All ranges of edges, whose literals are not counted yet."""
        return self.ranges() if self.literals is None and self.columns == (LINKS[0], LINKS[2]) else ()

    def survey(self, span: SourceRange) -> list[int]:
        """Number of statements of each kind in a range; raises as :meth:`read_names` does."""
        nothing = np.zeros(3, np.bool_)
        found = [counts for _, counts, _ in self._blocks(span, nothing)]
        return [int(count) for count in np.sum(found, axis=0)] if found else [0, 0, 0]

    def with_surveys(self, found: Sequence[Sequence[int]]) -> Statements:
        """The same statements, whose literals are counted.

        Raises:
            InputError: no statement has an edge.
        """
        counts = np.sum(np.array(found, np.int64).reshape(-1, 3), axis=0)
        if not counts[self._wanted].any():
            others = f"{counts[LITERAL]:,} with literals and {counts[TYPE]:,} with types"
            raise InputError(f"{self.files[0].location}: no statement leads to another vertex; there are {others}")
        return replace(self, literals=int(counts[LITERAL]))

    # For people

    def understood(self) -> list[Understood]:
        """Describes how each file is read, with its first statements."""
        return [self._understood(number) for number in range(len(self.files))]

    def _understood(self, number: int) -> Understood:
        file, rows, has_types = self.files[number], [], False
        blocks = self._blocks(SourceRange(number, 0, -1), np.ones(3, np.bool_), _SHOWN_BYTES)
        for parts, counts, line_at in islice(blocks, 1):
            has_types = bool(counts[TYPE])
            for row, offset in enumerate(line_at[:SHOWN_ROWS]):
                words = [part.name(row).decode(errors="replace") for part in parts]
                literal = _LITERAL.search(read_line(file, int(offset)).decode("utf-8", "replace"))
                rows.append((words[0], words[1], words[2] or (literal[0] if literal else "")))
        types = {"relation": "", "type": "; rdf:type is the type of its subject", "first": ""}
        types["first"] = types["type"] + " (the first one)"
        return Understood(
            file.location,
            NTRIPLES,
            {"source": self.columns[0], "target": self.columns[1], "ids": "names", "rdf_types": has_types},
            (
                f"N-Triples, a statement in each line{types[self.rdf_type]}",
                "statements with literals are left out" if self.columns[0] in LINKS else "",
            ),
            "",
            LINKS,
            tuple(rows),
            are_names=True,
            is_stated=True,
        )


FORMAT = Format(
    name=NTRIPLES,
    order=15,
    help="RDF statements, for a graph with types",
    open_edges=Statements.open,
    options=(
        COLUMNS,
        Option(
            "rdf_type",
            str,
            "What rdf:type becomes: a relation, the type of each vertex, or the first of several types, with the type"
            " entity for vertices without one.",
            default=RDF_TYPES[0],
            choices=RDF_TYPES,
        ),
    ),
    suffixes=("nt",),
)
