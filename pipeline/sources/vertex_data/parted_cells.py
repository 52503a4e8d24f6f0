"""Joins files that are the parts of one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.source import SourceRange
from gnnloom.pipeline.sources.vertex_data.cells import CellBlock, CellTable
from gnnloom.storage.errors import InputError

#: Bits of the place of a row within its file, and of the number of a file in a table.
_PLACE_BITS, _PART_BITS = 48, 14


@dataclass(frozen=True)
class PartedCells:
    """Files that are the parts of one table; implements :class:`CellTable`.

    The number of a part is in the upper bits of the places of its rows, and of the bounds of its ranges.

    Attributes:
        parts: the files, at least one; all have the columns of the first one.
    """

    parts: tuple[CellTable, ...]

    @classmethod
    def of(cls, parts: Sequence[CellTable]) -> PartedCells:
        """Put files together.

        Raises:
            InputError: a file has other columns than the first file, or there are too many files.
        """
        first = parts[0]
        if len(parts) > 1 << _PART_BITS:
            raise InputError(f"{first.file.location}: the table has {len(parts):,} files; join them into fewer files")
        for each in parts[1:]:
            if each.width != first.width:
                raise InputError(
                    f"{each.file.location}: {each.width:,} columns, and {first.width:,} in {first.file.location}, which"
                    " is a part of the same table"
                )
            for one, other in zip(first.names, each.names, strict=True) if first.names and each.names else ():
                if one != other:
                    raise InputError(
                        f"{each.file.location}: column {other} is called {one} in {first.file.location}, which is a"
                        " part of the same table; write the columns in one order"
                    )
        return cls(tuple(parts))

    @property
    def file(self) -> SourceFile:
        return self.parts[0].file

    @property
    def names(self) -> tuple[str, ...]:
        return self.parts[0].names

    @property
    def width(self) -> int:
        return self.parts[0].width

    @property
    def is_shared(self) -> bool:
        return all(each.is_shared for each in self.parts)

    def first_cells(self, column: int) -> tuple[str, list[str]]:
        return self.parts[0].first_cells(column)

    def num_rows(self) -> int:
        return sum(each.num_rows() for each in self.parts)

    def ranges(self) -> Sequence[SourceRange]:
        return [
            replace(span, start=base + span.start, stop=span.stop if span.stop < 0 else base + span.stop)
            for base, part in zip(range(0, len(self.parts) << _PLACE_BITS, 1 << _PLACE_BITS), self.parts, strict=True)
            for span in part.ranges()
        ]

    def read(self, span: SourceRange, columns: Sequence[int]) -> Iterator[CellBlock]:
        base = span.start >> _PLACE_BITS << _PLACE_BITS
        own = replace(span, start=span.start - base, stop=span.stop if span.stop < 0 else span.stop - base)
        for block in self.parts[base >> _PLACE_BITS].read(own, columns):
            yield replace(block, at=block.at + base)

    def read_rows(self, start: int, stop: int, columns: Sequence[int]) -> Iterator[CellBlock]:
        first = 0
        for number, part in enumerate(self.parts):
            last = first + part.num_rows()
            if first < stop and last > start:
                for block in part.read_rows(max(0, start - first), min(stop, last) - first, columns):
                    yield replace(block, first=block.first + first, at=block.at + (number << _PLACE_BITS))
            first = last

    def error(self, at: int, column: int, reason: str) -> InputError:
        number = at >> _PLACE_BITS
        return self.parts[number].error(at - (number << _PLACE_BITS), column, reason)
