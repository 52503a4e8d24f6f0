"""Refuses lines of a vertex and its neighbors, and rows of matrices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.lines import bad_line
from gnnloom.pipeline.sources.reading.name_ids import is_id
from gnnloom.pipeline.sources.reading.text_layout import Row, Sample, is_count, is_number

#: Fields of a line with an edge and a value; longer lines are neighbors or a matrix.
_TRIPLE: Final = 3
#: The line of a vertex in LGL, above the lines of its neighbors.
_HEAD: Final = re.compile(r"#\s+\S+")
#: The beginning of a line of a vertex and its neighbors.
_VERTEX: Final = re.compile(r"\S+:\s")


def refuse_lists(file: SourceFile, sample: Sample, rows: Sequence[Row]) -> None:
    """Refuse lists of neighbors below comments that name a vertex, as in LGL: ``# ann`` above ``bo 0.5`` and ``cy 1``.

    Comments between edges are not refused: they name no vertex, or the vertex that begins the edges below.

    Args:
        rows: the rows below the header.

    Raises:
        InputError: the rows are such lists.
    """
    begin = sample.comments[-1] if sample.comments else ""
    heads = [row.text for row in rows if _HEAD.fullmatch(row.text)]
    if not heads or not _HEAD.fullmatch(begin):
        return
    head, own, neighbors = begin, False, list[Row]()
    for row in [sample.rows[0], *rows]:
        if _HEAD.fullmatch(row.text):
            head = row.text
        else:
            own |= row.fields[0] == head[1:].strip()
            neighbors.append(row)
    firsts = {row.fields[0] for row in neighbors}
    weights = [row.fields[1] for row in neighbors if len(row.fields) > 1]
    have_points = all(map(is_count, firsts)) and not all(map(is_count, weights))
    are_weights = all(map(is_number, weights)) and (have_points or not all(map(is_number, firsts)))
    name_vertices = not own and 2 * sum(each[1:].strip() in firsts for each in heads) >= len(heads)
    if len(weights) < len(neighbors) or are_weights or name_vertices:
        raise bad_line(
            file,
            sample.rows[0].start,
            f"neighbors of the vertex in the line before ({begin!r}), as in LGL, which gnnloom does not read;"
            " igraph.Graph.Read_LGL reads it in Python, and its write_ncol writes a line for each edge; if all lines"
            " with # are comments, add `--comment '#'`",
        )


def refuse_neighbors(file: SourceFile, rows: Sequence[Row], *, has_header: bool) -> None:
    """Refuse lines of a vertex and its neighbors that a colon separates, and lists of vertices above lists of edges.

    Raises:
        InputError: all rows are such, or a line has a number sign alone.
    """
    if rows and all(row.fields[0][-1:] == ":" and _VERTEX.match(row.text) for row in rows):
        raise bad_line(
            file,
            rows[0].start,
            "a colon after the first id, as lines of a vertex and its neighbors have; write a line for each edge,"
            " without the colon",
        )
    parting = next((row for row in rows if row.text == "#"), None)
    if parting is not None and not has_header:
        raise bad_line(
            file,
            parting.start,
            "vertices above a number sign and edges below it, as in the Trivial Graph Format; write the edges alone,"
            " for example with sed '1,/^#$/d'",
        )


def refuse_named_neighbors(file: SourceFile, rows: Sequence[Row], widths: set[int]) -> None:
    """Refuse rows of names whose further columns have vertices.

    Raises:
        InputError: the rows are vertices with their neighbors.
    """
    beyond = [cell for row in rows for cell in row.fields[2:] if cell]
    if not beyond or any(is_id(cell) or is_number(cell) for cell in beyond):
        return
    ends = {cell for row in rows for cell in row.fields[:2]}
    found = sum(cell in ends for cell in beyond)
    if found > len(beyond) / 2 or (found and len(widths) > 1):
        raise bad_line(
            file,
            rows[0].start,
            "further columns have vertices too, as lines of a vertex and its neighbors have; write a line for each"
            " edge, or add `--columns 1,2` if the first two fields of each line are an edge",
        )


def refuse_transposed(file: SourceFile, rows: Sequence[Row]) -> None:
    """Refuse two rows of many ids: the sources and the targets, as the ``edge_index`` of PyG is written.

    Raises:
        InputError: the file has two such rows, which have most ids in common.
    """
    widths = {len(row.fields) for row in rows}
    if len(rows) != 2 or len(widths) > 1 or min(widths) <= _TRIPLE:
        return
    sources, targets = (set(row.fields) for row in rows)
    if not all(map(is_id, sources | targets)) or 2 * len(sources & targets) <= max(len(sources), len(targets)):
        return
    raise bad_line(
        file,
        rows[0].start,
        f"two rows of {min(widths)} ids, perhaps the sources and the targets of edges, as in an edge_index; write a"
        " line for each edge, for example with numpy.savetxt(file, edge_index.T, '%d'), or add `--columns 1,2` if each"
        " row is an edge",
    )


def is_matrix(sample: Sample, *, has_header: bool, is_named: bool, is_valued: bool) -> bool:
    """Whether the rows are an adjacency matrix, with or without names of its rows and columns.

    A matrix is square. A matrix that is not whole in the sample has more columns than the sample has rows.

    Args:
        is_named: the header names the ends of edges.
        is_valued: the user says that the third column has values.
    """
    first, rows = sample.rows[0].fields, sample.rows
    below = rows[1:]
    for titles in (first[1:], first):
        firsts = [row.fields[0] for row in below]
        is_wide = all(len(row.fields) == len(titles) + 1 and _are_numbers(row.fields[1:]) for row in below)
        if len(firsts) > 1 and is_wide and firsts == list(titles[: len(firsts) if not sample.is_whole else None]):
            return True
    # Three weighted edges are three rows of three numbers as well.
    cells = [row.fields for row in (below if has_header else rows)]
    size = len(cells[0]) if cells else 0
    is_square = len(cells) == size if sample.is_whole else len(cells) < size
    if is_named or size < _TRIPLE or not is_square or any(len(row) != size for row in cells):
        return False
    if not all(map(_are_numbers, cells)):
        return False
    is_symmetric = all(cells[i][j] == cells[j][i] for i in range(len(cells)) for j in range(i))
    if is_symmetric or (size > _TRIPLE and {cell for row in cells for cell in row} <= {"0", "1", "0.0", "1.0"}):
        return True
    return not is_valued and all(row[at] in {"0", "0.0"} for at, row in enumerate(cells))


def _are_numbers(cells: Sequence[str]) -> bool:
    return all(not cell or is_number(cell.replace(",", ".")) for cell in cells)
