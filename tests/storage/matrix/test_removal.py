"""A matrix without some entries equals SciPy's with zeros in their places."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from gnnloom.storage import CSR
from gnnloom.storage.matrix.removal import without_entries
from support.graphs import random_adjacency


@pytest.mark.slow
@pytest.mark.parametrize("share", [0, 1, 3])
def test_the_other_entries_stay_in_their_order(share: int) -> None:
    adjacency = random_adjacency(40, 160, 3, symmetric=False)
    given = CSR(7, adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int32), adjacency.data, 40)
    row, column = adjacency.nonzero()
    removed = np.sort(np.random.default_rng(1).permutation(len(row))[: len(row) // share if share else 0])
    expected = adjacency.copy()
    expected.data[removed] = 0
    expected = scipy.sparse.csr_array(expected)
    expected.eliminate_zeros()
    found = without_entries(given, row[removed].astype(np.int32), column[removed].astype(np.int32))
    assert found.row_offset == 7
    assert found.data is None
    assert np.array_equal(found.indptr, expected.indptr)
    assert np.array_equal(found.indices, expected.indices)


def test_entries_that_are_not_there_are_an_error() -> None:
    matrix = CSR(0, np.array([0, 2, 3]), np.array([0, 2, 1], np.int32), None, 3)
    for row, column in (([0], [1]), ([1, 0], [1, 0]), ([0, 0], [0, 0]), ([0, 0, 1, 1], [0, 2, 0, 1])):
        with pytest.raises(ValueError, match="entries to remove"):
            without_entries(matrix, np.array(row, np.int32), np.array(column, np.int32))
