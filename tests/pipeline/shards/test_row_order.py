"""The entries of rows are sorted by column, whatever the lengths of the rows and the width of the columns."""

from __future__ import annotations

import numpy as np
import pytest

from gnnloom.pipeline.shards.rows.row_entries import SplitRows, _sort_rows


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("num_columns", "lengths"),
    [(1, [1, 0, 1, 1]), (7, [0, 7, 3, 0]), (2000, [1500]), (1 << 31, [40, 0, 1, 200]), (1 << 37, [3, 300, 0, 0])],
)
def test_entries_are_sorted_within_their_rows_and_keep_their_values(
    num_columns: int, lengths: list[int], weighted: bool
) -> None:
    rng = np.random.default_rng(num_columns)
    # Distinct within a row, up to the last column.
    rows = [num_columns - 1 - rng.permutation(max(length, min(num_columns, 4000)))[:length] for length in lengths]
    column = np.concatenate(rows).astype(np.int64 if num_columns > 1 << 31 else np.int32)
    data = rng.random(len(column) if weighted else 0).astype(np.float32)
    row = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((column, row))
    expected, values = column[order], data[order] if weighted else data.copy()
    _sort_rows(SplitRows(np.cumsum(lengths), column, data), num_columns)
    np.testing.assert_array_equal(column, expected)
    np.testing.assert_array_equal(data, values)
