"""Describes how a text file of edges is read: for people, and as facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnnloom.pipeline.sources.reading.first_lines import FirstLines, Suggestion
from gnnloom.pipeline.sources.reading.text_layout import doubt_of_points
from gnnloom.pipeline.sources.reading.text_table import TextTable, describe_columns, spelled
from gnnloom.pipeline.sources.understood import Understood
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.ticks import WHOLE
from gnnloom.storage.wording import counted


@dataclass(frozen=True)
class Reading:
    """Choices of the user that a description of a text file shows.

    Attributes:
        value: ``weight`` or ``time`` if the third column is read as such; empty if edges have no values.
        are_names: all ids are names, even if they look like numbers.
        is_stated: the user chose the columns.
        extra_columns: further columns are ignored rather than refused.
        has_size: something other than the file states the number of vertices.
    """

    value: str
    are_names: bool
    is_stated: bool
    extra_columns: bool
    has_size: bool


def describe_text(location: str, table: TextTable, lines: FirstLines, reading: Reading) -> Understood:
    """Describe how a file is read, judging by its first lines."""
    value = reading.value
    try:
        kind, question = lines.kind(are_names=reading.are_names), ""
    except InputError as error:
        kind, question = None, str(error)
    columns = describe_columns(table, lines.columns, value)
    between = {} if kind is None else {"ids": "names" if kind.are_names else "numbers"}
    decided = {} if kind is None or kind.at < 0 else {"decided_by": {"line": kind.at, "id": kind.token}}
    ids = "" if kind is None else "ids are names" if kind.are_names else "ids are numbers"
    ids += f": {kind.token!r} in line {kind.at} is not a number" if kind is not None and kind.at >= 0 else ""
    facts = {
        "separator": table.separator.decode("latin-1"),
        "header": bool(table.header),
        "comments": table.comments,
        "row_numbers": table.has_index,
        **columns,
        **({"time_unit": table.times.unit} if table.times is not None else {}),
        **between,
        **decided,
        **({"ratings": True} if lines.are_ratings else {}),
    }
    shown, at = lines.rows, (table.fields or (0, 1, 2))[-1]
    weights = [row[at] for row in shown if len(row) > at] if value == "weight" else []
    titles = table.header or lines.titles or [str(number + 1) for number in range(_widest(shown))]
    width = max(len(titles), _widest(shown))
    further = Suggestion() if reading.extra_columns else lines.suggestion
    flags = (*further.flags, *(("--undirected",) if table.is_symmetric else ()))
    # Vertices without an edge would need features as well.
    flags = (*flags, *(("--ids compact",) if lines.smallest and not reading.has_size else ()))
    return Understood(
        location,
        "snap",
        facts,
        (
            _layout(table),
            _columns(table, columns, value),
            doubt_of_points(table.separator, weights),
            further.unread,
            ids,
        ),
        question,
        (*titles, *[""] * (width - len(titles))),
        tuple((*row, *[""] * (width - len(row))) for row in shown),
        None if kind is None else kind.are_names,
        flags,
        reading.is_stated,
    )


def _layout(table: TextTable) -> str:
    """Separator, header and comments, for people."""
    skipped = [f"{counted(table.comments, 'comment')} before it"] if table.comments else []
    first = (
        "the first line counts the others"
        if table.is_counted
        else "the first line names the columns"
        if table.header
        else "no header"
    )
    return "; ".join([f"text, fields between {spelled(table.separator)}; {first}", *skipped])


def _columns(table: TextTable, columns: Mapping[str, Any], value: str) -> str:
    """The columns that are read, for people.

    Args:
        columns: as :func:`~gnnloom.pipeline.sources.reading.text_table.describe_columns` gives them.
    """
    read = f"edges from {columns['source']} to {columns['target']}"
    read += f", {value}s in {columns['value']}" if value else ""
    if table.times is not None and table.times.unit == WHOLE:
        read += " (whole numbers, stored as int64)"
    elif table.times is not None:
        zone = "with zones" if table.times.has_zone else "without a zone, taken as UTC"
        read += f" (dates {zone}; stored in {table.times.unit})"
    index = "; the first column numbers the rows and is skipped" if table.has_index and not table.question else ""
    return f"{read}{index}"


def _widest(rows: Sequence[Sequence[str]]) -> int:
    return max(map(len, rows), default=0)
