"""Lists of pairs, and of targets, that files give: rows of ids, as the source of the edges has them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.stored_arrays import PackedSource, StoredArray, Unpacked, unpacked_array
from gnnloom.pipeline.sources.format import formats, guess_format, open_edges
from gnnloom.pipeline.sources.names import NameChunk, NamedEdgeSource, Names
from gnnloom.pipeline.sources.reading.files import shown_location
from gnnloom.pipeline.sources.source import CHUNK_EDGES, EdgeSource, SourceRange, SurveyedSource, even_ranges
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.pipeline.sources.understood import Understood, understood_of
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import open_one_array
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import counted

#: Ids of a matrix that a task reads, and that are read at a time.
_RANGE_IDS: Final = 1 << 23
_CHUNK_IDS: Final = 1 << 20


@dataclass(frozen=True)
class IdRows:
    """Consecutive rows of a list.

    Attributes:
        ids: (num_rows * width,) int64 ids or names.
        values: (num_rows,) float32, or None.
    """

    ids: NDArray[np.int64] | Names
    values: NDArray[np.float32] | None = None

    def as_names(self) -> Names:
        """The ids as text; a number's text is its digits."""
        return self.ids if isinstance(self.ids, Names) else Names.of_values(self.ids)


@dataclass(frozen=True)
class PairList:
    """Pairs, two ids in a row, in any format of edges.

    Attributes:
        path: of the array that they become.
        edges: the pairs as edges.
        location: the file, for errors.
        has_values: each has a number, in the column of the weights.
    """

    path: str
    edges: EdgeSource
    location: str
    has_values: bool = False

    @classmethod
    def open(
        cls,
        path: str,
        location: str,
        format_name: str | None,
        options: dict[str, Any],
        *,
        has_values: bool = False,
    ) -> PairList:
        """Open a file.

        Args:
            format_name: format of the file; None guesses it.
            options: options of formats; each format gets the options that it has.

        Raises:
            NotFoundError: there is no such file.
            InputError: it has no pairs, or another format.
        """
        chosen = formats()[format_name or guess_format([location])]
        given = {**options, "weights": has_values}
        known = {option.name: given[option.name] for option in chosen.options if option.name in given}
        if has_values and "weights" not in known:
            raise InputError(f"{shown_location(location)}: format {chosen.name!r} has no column of values")
        edges = open_edges(chosen.name, [location], known)
        if isinstance(edges, SurveyedSource) and edges.surveys():
            raise InputError(
                f"{shown_location(location)}: a file of format {chosen.name!r}, which holds a graph; give lists of"
                " pairs"
            )
        return cls(path, edges, shown_location(location), has_values)

    @property
    def width(self) -> int:
        return 2

    def understood(self, *, names: bool) -> list[Understood]:
        """Describes how the file is read, judging by its first lines.

        Args:
            names: the ids of the graph are names.
        """
        found = understood_of(self.edges, [self.location], str(self.identity()["format"]))
        return [self._understood(each, names=names) for each in found]

    def _understood(self, found: Understood, *, names: bool) -> Understood:
        kind = "names" if names else "numbers"
        told = found.sentences or (f"format {found.format}",)
        # The graph decides what the ids are.
        told = tuple(each for each in told if not each.startswith("ids are "))
        sentences = [each.replace("edges from", "pairs from").replace("weights in", "values in") for each in told]
        facts = {name: fact for name, fact in found.facts.items() if name not in {"ids", "decided_by"}} | {"ids": kind}
        sentences.append(f"ids are {kind}, as in the graph")
        other = found.facts.get("decided_by")
        question = found.question
        if found.are_names and not names:
            where = f": {other['id']!r} in line {other['line']} is not a number" if other else ""
            question = f"the graph has numbers as ids, and the file has names{where}"
        return replace(found, facts=facts, sentences=tuple(sentences), question=question, are_names=names)

    @property
    def header_hint(self) -> str:
        """Suggestion for an error about an id of the first row, which may name the columns; empty if it does not."""
        return self.edges.header_hint if isinstance(self.edges, TextEdges) else ""

    def identity(self) -> dict[str, Any]:
        return self.edges.identity()

    def with_unpacked(self, unpacked: Unpacked) -> PairList:
        """The same list, which reads some arrays from files into which they were unpacked."""
        return replace(self, edges=self.edges.with_unpacked(unpacked)) if isinstance(self.edges, PackedSource) else self

    @property
    def source(self) -> object:
        """The reader, which may have compressed arrays."""
        return self.edges

    def ranges(self) -> Sequence[SourceRange]:
        return self.edges.ranges()

    def read(self, span: SourceRange, *, names: bool) -> Iterator[IdRows]:
        """Read the rows of a range.

        Args:
            names: the ids are names.

        Raises:
            InputError: something in the file is not a pair of ids.
        """
        with _as_pairs():
            if not names:
                for chunk in self.edges.read(span):
                    yield IdRows(np.stack([chunk.source, chunk.target], axis=1).reshape(-1), chunk.weight)
                return
            if not isinstance(self.edges, NamedEdgeSource):
                raise InputError(f"{self.location}: ids of this format are numbers, but the graph's ids are names")
            for named in self.edges.read_names(span):
                yield IdRows(_alternating(named), named.weight)

    def count(self, span: SourceRange, *, names: bool) -> int:
        """Number of rows of a range."""
        if names:
            return sum(len(rows.as_names()) // 2 for rows in self.read(span, names=True))
        with _as_pairs():
            return sum(len(chunk.source) for chunk in self.edges.read(span))

    def expected_rows(self, *, names: bool) -> int:
        """Approximate number of rows; exact if the file states it, or if a task counts all of a small file."""
        stated, estimate = (getattr(self.edges, name, None) for name in ("num_edges", "estimate_edges"))
        if isinstance(stated, int):
            return stated
        spans = self.ranges()
        found = None if estimate is None or len(spans) == 1 else estimate()
        return len(spans) * self.count(spans[0], names=names) if found is None else round(found.likely)


@contextmanager
def _as_pairs() -> Iterator[None]:
    """Let errors about edges name the options of pairs."""
    try:
        yield
    except InputError as error:
        text = re.sub(r"(add `--)weights(`.* as )weights,", r"\1values\2values,", str(error))
        if text == str(error):
            raise
        raise InputError(text) from error


def _alternating(chunk: NameChunk) -> Names:
    """Source and target of each edge in turn."""
    import pyarrow as pa  # noqa: PLC0415 - only names need it

    count = len(chunk.source)
    order = np.arange(2 * count).reshape(2, count).T.reshape(-1)
    return Names.from_arrow(pa.concat_arrays([chunk.source.to_arrow(), chunk.target.to_arrow()]).take(order))


@dataclass(frozen=True)
class TargetMatrix:
    """Targets that are negatives: a row of ids for each pair of a split, all rows of equal length.

    Attributes:
        path: of the array that they become.
        array: (num_rows, width) ids.
    """

    path: str
    array: StoredArray
    has_values = False
    header_hint = ""

    @classmethod
    def open(cls, path: str, location: str) -> TargetMatrix:
        """Open a NumPy file.

        Raises:
            NotFoundError: there is no such file.
            InputError: it is not an array of rows of ids.
        """
        return cls.of(path, open_one_array(location, "targets"))

    @classmethod
    def of(cls, path: str, array: StoredArray) -> TargetMatrix:
        """The rows of a stored array.

        Raises:
            InputError: it has another shape or dtype.
        """
        if len(array.shape) != 2 or array.dtype.kind not in "iuUS" or array.fortran_order or not array.size:
            raise InputError(f"{array}: expected rows of ids, one for each pair, found {array.dtype} of {array.shape}")
        return cls(path, array)

    @property
    def location(self) -> str:
        return str(self.array)

    @property
    def width(self) -> int:
        return self.array.shape[1]

    def understood(self, *, names: bool) -> list[Understood]:
        """Describes how the file is read, as :meth:`PairList.understood` does."""
        kind = "names" if names else "numbers"
        rows = f"NumPy, {counted(self.array.shape[0], 'row')} of {counted(self.width, 'target')}"
        facts = {"targets": self.width, "ids": kind}
        return [Understood(self.location, "numpy", facts, (rows, f"ids are {kind}, as in the graph"), are_names=names)]

    def identity(self) -> dict[str, Any]:
        return {"format": "targets", "file": self.array.file.identity(), "array": self.array.member or ""}

    @property
    def source(self) -> object:
        return self

    def stored_arrays(self) -> tuple[StoredArray, ...]:
        """Arrays that may be compressed, as of a ``PackedSource``."""
        return (self.array,)

    def with_unpacked(self, unpacked: Unpacked) -> TargetMatrix:
        return replace(self, array=unpacked_array(self.array, unpacked))

    def ranges(self) -> Sequence[SourceRange]:
        rows = self.array.shape[0]
        return even_ranges(0, rows, max(1, _RANGE_IDS // self.width) if self.array.is_mapped else rows)

    def count(self, span: SourceRange, *, names: bool) -> int:  # noqa: ARG002 - as of pairs
        return span.stop - span.start

    def expected_rows(self, *, names: bool) -> int:  # noqa: ARG002 - as of pairs
        return self.array.shape[0]

    def read(self, span: SourceRange, *, names: bool) -> Iterator[IdRows]:
        step = max(1, min(CHUNK_EDGES, _CHUNK_IDS) // self.width) * self.width
        done = span.start * self.width
        for block in self.array.read_flat(done, span.stop * self.width, step):
            if names or block.dtype.kind in "US":
                yield IdRows(self._names(block, done))
            else:
                yield IdRows(self._numbers(block, done))
            done += len(block)

    def _names(self, block: NDArray[Any], first: int) -> Names:
        found = Names.of_values(block)
        at, reason = found.first_wrong()
        if at >= 0:
            raise InputError(f"{self.location}, row {(first + at) // self.width:,}: {reason}")
        return found

    def _numbers(self, block: NDArray[Any], first: int) -> NDArray[np.int64]:
        wrong = np.flatnonzero((block < 0) | (block > np.iinfo(np.int64).max))
        if len(wrong):
            row = (first + int(wrong[0])) // self.width
            raise InputError(f"{self.location}, row {row:,}: expected ids of vertices, found {block[wrong[0]]}")
        return block.astype(np.int64)


IdList = PairList | TargetMatrix
