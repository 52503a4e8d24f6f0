"""Ids get the narrowest dtype that holds them, and the transpose equals SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gnnloom.storage import CSR
from gnnloom.storage.matrix.csr import INT32_WIDTH, cast_ids, index_dtype
from gnnloom.storage.matrix.transpose import transposed


def test_ids_get_the_narrowest_dtype_that_holds_them() -> None:
    assert index_dtype(INT32_WIDTH) == np.int32
    assert index_dtype(INT32_WIDTH + 1) == np.int64
    with pytest.raises(OverflowError, match=r"0\.\.4"):
        cast_ids(np.array([0, 5]), 5)
    with pytest.raises(OverflowError, match=r"0\.\.4"):
        cast_ids(np.array([-1]), 5)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_transpose_equals_that_of_scipy(weighted: bool) -> None:
    matrix: Any = scipy.sparse.random_array((30, 50), density=0.1, rng=np.random.default_rng(0), format="csr")
    matrix.sort_indices()
    data = matrix.data if weighted else None
    found = transposed(CSR(7, matrix.indptr.astype(np.int64), matrix.indices, data, 50))
    expected = matrix.T.tocsr()
    expected.sort_indices()
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.indices, expected.indices)
    assert (found.row_offset, found.num_columns) == (0, 30)
    if weighted:
        assert found.data is not None
        np.testing.assert_array_equal(found.data, expected.data)
    else:
        assert found.data is None
