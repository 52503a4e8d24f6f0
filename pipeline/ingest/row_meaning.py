"""Tells tables with a row per vertex from edges by their first rows, and their columns of ids, features and labels.

Edges repeat ids, and their two ends are of one kind. A table of vertices has an id per row, and its other columns have
values that are not ids: fractions, dates, a few words. If the first rows are ambiguous, both readings are possible.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from itertools import pairwise
from typing import Final

from gnnloom.pipeline.sources.reading.first_lines import is_called
from gnnloom.pipeline.sources.reading.name_ids import is_id
from gnnloom.pipeline.sources.reading.text_layout import (
    columns_by_thing,
    find_ends,
    is_number,
    names_ids,
    numbers_rows,
)
from gnnloom.pipeline.sources.reading.times import find_times
from gnnloom.pipeline.sources.vertex_data.cells import CellTable, TextTableCells, column_name
from gnnloom.pipeline.sources.vertex_data.class_names import is_label
from gnnloom.pipeline.sources.vertex_data.table_columns import (
    PARTS,
    TRUTH,
    counts,
    is_known,
    is_part,
    is_value,
    is_word,
    kind_of,
    list_width,
)
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import split_part

#: The most words that are proposed as classes.
_FEW: Final = 64
#: How names of columns of labels end: Gephi's modularity_class.
_ENDINGS: Final = ("_class", "_label")
#: Measures of a vertex, by names of columns without signs between their words.
_MEASURES: Final = frozenset({
    "degree", "degrees", "deg", "indegree", "outdegree", "pagerank", "betweenness", "closeness", "centrality",
    "eigenvector", "coreness", "core", "kcore", "triangles", "eccentricity",
})  # fmt: skip
#: Rows of a table of numbers that show whether the second one is a class, at least.
_FEWEST_ROWS: Final = 8
#: How names of columns with the name of a vertex end: GTFS's stop_name.
_OWN_NAME: Final = re.compile(r"(name|label|title|description)$", re.IGNORECASE)
#: What is left out of names of columns before they are compared with words.
_SIGNS: Final = re.compile(r"[^a-z]")
#: Stands for a column of a type that cannot be read.
_OTHER: Final = "other"


class Rows(Enum):
    """Meaning of a table's rows: edges or vertices."""

    EDGE = "an edge"
    VERTEX = "a vertex"
    #: Both readings are possible; the second word says which one is more likely.
    EDGE_LIKELY = "likely an edge"
    VERTEX_LIKELY = "likely a vertex"


def judge_rows(table: CellTable) -> tuple[Rows, str]:
    """Meaning of each row of a table, edge or vertex, and the evidence, as text for users."""
    start = first_column(table)
    names, width = list(table.names[start:]), table.width - start
    if width == 1:
        return (Rows.VERTEX if _is_column(shown_cells(table, start)[1]) else Rows.EDGE), ""
    titles = names or (list(table.titles) if isinstance(table, TextTableCells) else [])
    if titles and _name_edges(titles):
        return Rows.EDGE, ""
    cells = [shown_cells(table, number)[1] for number in range(start, min(start + 3, table.width))]
    first, others = cells[0], [set(column) for column in cells[1:]]
    is_unique, is_named = len(set(first)) == len(first), bool(names) and names_ids(names[0])
    has_no_names = not names and width > 3 and is_unique and _is_planetoid(table)
    shown = [f"column {column_name(table, number)}" for number in range(start, start + 2)]
    # A matrix has the names of its rows in its first line.
    is_matrix = bool(names) and set(first) <= set(table.names)
    have_ids = bool(first) and not is_matrix and all(cell.isdigit() or is_id(cell) or is_word(cell) for cell in first)
    unlike = _no_ids(table, start + 1) if have_ids and not find_times(first) else ""
    why = f"{shown[1]} has {unlike}" if unlike and (is_unique or is_named) else ""
    # Two columns of numbers with some in common may be ends, even if their names do not say so.
    may_be_ends = all(all(map(is_id, column)) for column in cells[:2]) and not others[0].isdisjoint(first)
    is_named_so = any(name.lower() in PARTS or is_label(name) or split_part(name) for name in names[1:])
    is_named_so |= is_unique and any(_SIGNS.sub("", name.lower()) in _MEASURES for name in names[1:])
    if why or has_no_names or (is_named_so and (is_unique or not (is_named or may_be_ends))):
        return Rows.VERTEX, why
    # Ends of edges mostly have ids in common, and third columns of triples have them with first ones.
    is_triple = any(not is_id(cell) and cell in first for column in others[1:] for cell in column)
    if not have_ids or not is_unique or find_times(first) or is_triple:
        return Rows.EDGE, ""
    return _likely(names, width, cells, is_named=is_named), f"no id of {shown[0]} occurs twice in the first rows"


def _likely(names: Sequence[str], width: int, cells: Sequence[Sequence[str]], *, is_named: bool) -> Rows:
    """The more likely meaning of rows if the first column has each id once.

    Args:
        cells: of the first columns.
        is_named: the first column is called as ids are.
    """
    # A cell without a value is neither a number nor a word.
    first, second = ([cell.removesuffix(".0") for cell in column if is_known(cell)] for column in cells[:2])
    is_apart, repeats = set(first).isdisjoint(second), len(set(second)) < len(second)
    has_words = [any(not is_id(cell) for cell in column) for column in (first, second)]
    rest = names[2:]
    is_weight = not names and width == 3 and all(map(is_number, cells[2]))
    is_valued = is_weight or (
        bool(rest) and all(is_called(name, "weights") or is_called(name, "times") for name in rest)
    )
    has_more = width > 2 and not is_valued
    if is_named and (is_apart or has_more):
        return Rows.EDGE_LIKELY if is_valued else Rows.VERTEX_LIKELY
    if has_words[0] != has_words[1] or (has_words[1] and is_apart and repeats):
        return Rows.VERTEX_LIKELY if has_more else Rows.EDGE_LIKELY
    is_open = has_more and (bool(names) or is_apart)
    is_open |= width == 2 and repeats and ((bool(names) and is_apart) or _are_classes(first, second))
    return Rows.EDGE_LIKELY if is_open else Rows.EDGE


def _are_classes(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether two columns of numbers may be vertices and their classes or degrees.

    The first ascends, as vertices in a table do, and the second has few different numbers.
    """
    if len(first) < _FEWEST_ROWS or not all(map(is_id, (*first, *second))):
        return False
    vertices = [int(float(cell)) if "." in cell else int(cell) for cell in first]
    is_ascending = all(one < other for one, other in pairwise(vertices))
    return is_ascending and 2 * len(set(second)) <= len(second)


def _no_ids(table: CellTable, column: int) -> str:
    """Description of a cell in a column that is not an id; empty if all cells may be ids."""
    holds, cells = shown_cells(table, column)
    known = [cell for cell in cells if is_known(cell)]
    if holds == _OTHER:
        return "neither numbers nor text"
    if holds == "list" or (known and all(list_width(cell) for cell in known)):
        return "lists"
    if known and all(cell.lower() in TRUTH for cell in known):
        return "True and False"
    if known and find_times(known):
        return "dates"
    if holds == "number" and any("." in cell for cell in known):
        return "floating-point numbers"
    if fraction := next((cell for cell in known if is_number(cell) and float(cell) % 1), ""):
        return f"numbers that are not ids, such as {fraction}"
    return ""


def _name_edges(names: Sequence[str]) -> bool:
    """Whether names of columns are usual for the two ends of an edge."""
    # The name of a vertex is not another vertex.
    is_own_name = _OWN_NAME.search(names[1]) is not None and _OWN_NAME.search(names[0]) is None
    is_own_name |= any(len(thing) > 1 for thing in columns_by_thing(names[:2]))
    are_ids = all(map(names_ids, names[:2])) and not is_own_name
    return are_ids or bool(find_ends(names))


def _is_column(cells: Sequence[str]) -> bool:
    """Whether the cells of the only column are fractions, or repeat, as classes do."""
    known = [cell for cell in cells if is_known(cell)]
    has_fractions = any(is_number(cell) and float(cell) % 1 for cell in known)
    return (has_fractions and all(map(is_value, known))) or 0 < 2 * len(set(known)) <= len(known)


def _is_planetoid(table: CellTable) -> bool:
    """Whether each row has an id, numbers, and the name of a class."""
    kinds = [kind_of(shown_cells(table, number)[1])[0] for number in (table.width - 1, *range(1, table.width - 1))]
    return kinds[0] == "words" and set(kinds[1:]) == {"number"}


def first_column(table: CellTable) -> int:
    """Number of the first column that does not number the rows. A frame's index may have the ids."""
    start = int(bool(table.names) and table.width > 1 and numbers_rows(table.names[0]))
    is_index = start and not names_ids(table.names[start]) and not counts(shown_cells(table, 0)[1])
    return 0 if is_index else start


def shown_cells(table: CellTable, number: int) -> tuple[str, list[str]]:
    """First cells like :meth:`CellTable.first_cells`, but also for a column of a type that cannot be read."""
    try:
        return table.first_cells(number)
    except InputError:
        return _OTHER, []


def propose(table: CellTable, *, has_ids: bool = False) -> tuple[int | None, dict[str, list[int]]]:
    """Numbers of the columns that a table seems to have for the ids and for each option; an id may be missing.

    Args:
        has_ids: whether the first column has ids, even if its name does not say so.
    """
    start = first_column(table)
    first = shown_cells(table, start)[1]
    are_names = bool(first) and all(map(is_word, first)) and len(set(first)) == len(first)
    is_index = bool(table.names) and numbers_rows(table.names[start])
    named = bool(table.names) and names_ids(table.names[start])
    has_ids = table.width - start > 1 and (has_ids or not table.names or is_index or are_names or named)
    found: dict[str, list[int]] = {"feature": [], "label": [], "target": [], "split": []}
    for number in range(start + has_ids, table.width):
        name, (holds, cells) = column_name(table, number), shown_cells(table, number)
        if holds == _OTHER:
            continue
        kind, known = holds or kind_of(cells)[0], [cell for cell in cells if is_known(cell)]
        is_mask = name.lower().endswith("mask") and split_part(name) is not None
        is_split = name.lower() in PARTS or (bool(known) and all(map(is_part, known)))
        if is_mask or (is_split and not found["split"]):
            found["split"].append(number)
        elif not known and cells:
            continue
        elif (
            (is_label(name) or name.lower().endswith(_ENDINGS))
            and not _are_names(kind, known)
            and not found["label"]
            and not found["target"]
        ):
            has_fraction = any("." in cell and float(cell) % 1 for cell in known if is_number(cell))
            found["target" if has_fraction else "label"].append(number)
        elif kind == "number" and not table.names and table.width - start == 2 and _are_dense(known):
            found["label"].append(number)
        elif kind != "words" and not (table.width == 1 and all(map(is_id, known))):
            found["feature"].append(number)
        elif not _are_names(kind, known) and not found["label"]:
            found["label"].append(number)
    return start if has_ids else None, {option: numbers for option, numbers in found.items() if numbers}


def _are_dense(known: Sequence[str]) -> bool:
    """Whether a column has few numbers, and these are all numbers from 0 or 1 on, as numbers of classes are."""
    numbers = {int(cell) if cell.isdecimal() else -1 for cell in set(known)}
    is_dense = min(numbers, default=-1) in {0, 1} and max(numbers) - min(numbers) + 1 == len(numbers)
    return is_dense and len(numbers) > 1 and 2 * len(numbers) <= len(known)


def _are_names(kind: str, known: Sequence[str]) -> bool:
    """Whether a column of words has descriptions: few words are classes, many are not."""
    return kind == "words" and len(set(known)) > min(_FEW, max(2, len(known) // 2))
