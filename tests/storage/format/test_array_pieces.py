"""Arrays that several tasks write have the bytes and the record of an array that one writer wrote at once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from gnnloom.storage.errors import CorruptError, InputError
from gnnloom.storage.format.array_pieces import ArrayAppender, ArrayForm, Edge, join_pieces
from gnnloom.storage.format.array_record import Piece
from gnnloom.storage.format.arrays import write_array
from support.scratch import small_chunks

SHAPES = ((1000,), (1000, 3), (10,), (64,), (0,), (5, 0))


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, 256)


def form_of(rows: np.ndarray) -> ArrayForm:
    return ArrayForm("values", rows.shape, rows.dtype.name, ("row", "feature")[: rows.ndim])


def write_piece(root: Path, rows: np.ndarray, start: int, stop: int) -> tuple[list[Piece], list[Edge]]:
    """Write some rows, seven at a time; returns the pieces and the edges."""
    edges: list[Edge] = []
    form = form_of(rows)
    appender = ArrayAppender(root, form, (start, stop), lambda edge: edges.append(Edge(edge.first, edge.rows.copy())))
    for first in range(start, stop, 7):
        appender.append(rows[first : min(first + 7, stop)])
    return list(appender.close().pieces), edges


def stored(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("shape", SHAPES)
def test_pieces_of_any_length_give_the_bytes_and_the_record_of_one_writer(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 100, shape).astype(np.int32)
    whole = write_array(tmp_path / "whole", "values", rows, form_of(rows).dims)
    for case in range(12):
        root = tmp_path / str(case)
        cuts = [0, *np.sort(rng.integers(0, len(rows) + 1, case)).tolist(), len(rows)]
        written = [write_piece(root, rows, *span) for span in pairwise(cuts)]
        for pieces, edges in written:
            # A chunk at each end, and only one piece between them.
            assert len(pieces) <= 1
            assert len(edges) <= 2
        edges = [edge for _, found in written for edge in found]
        (root / "values" / "c").mkdir(parents=True, exist_ok=True)
        (root / "values" / "c" / ".3.killed").touch()
        joined = join_pieces(root, form_of(rows), [piece for found, _ in written for piece in found], edges)
        assert joined == whole
        assert stored(root) == stored(tmp_path / "whole")


@pytest.mark.parametrize("shape", SHAPES)
def test_the_only_writer_replaces_what_is_there(tmp_path: Path, shape: tuple[int, ...]) -> None:
    rows = np.random.default_rng(0).integers(0, 100, shape).astype(np.int32)
    write_array(tmp_path / "one", "values", np.zeros((4000, *shape[1:]), np.int32), form_of(rows).dims)
    appender = ArrayAppender(tmp_path / "one", form_of(rows))
    appender.append(rows)
    assert appender.close() == write_array(tmp_path / "whole", "values", rows, form_of(rows).dims)
    assert stored(tmp_path / "one") == stored(tmp_path / "whole")


def test_rows_that_are_missing_or_too_many_are_refused(tmp_path: Path) -> None:
    rows = np.arange(1000, dtype=np.int32)
    appender = ArrayAppender(tmp_path, form_of(rows), (100, 300), lambda _: None)
    with pytest.raises(InputError, match="301 rows appended to a range up to 300"):
        appender.append(rows[:201])
    appender.append(rows[:199])
    with pytest.raises(InputError, match="rows up to 299 appended to a range up to 300"):
        appender.close()
    (first, left), (last, right) = write_piece(tmp_path, rows, 0, 500), write_piece(tmp_path, rows, 500, 1000)
    for edges in (left, right, [*right, *left]):
        with pytest.raises(InputError, match="no task wrote the rows from"):
            join_pieces(tmp_path, form_of(rows), [*first, *last], edges)


def test_a_chunk_that_a_task_did_not_write_is_an_error(tmp_path: Path) -> None:
    rows = np.arange(1000, dtype=np.int32)
    written = [write_piece(tmp_path, rows, *span) for span in ((0, 500), (500, 1000))]
    other = tmp_path / "values" / "c" / "3"
    other.write_bytes((tmp_path / "values" / "c" / "2").read_bytes())
    pieces = [piece for found, _ in written for piece in found]
    edges = [edge for _, found in written for edge in found]
    with pytest.raises(CorruptError, match="damaged chunk"):
        join_pieces(tmp_path, form_of(rows), pieces, edges)
