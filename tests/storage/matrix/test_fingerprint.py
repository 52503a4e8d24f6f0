"""Fingerprints ignore order and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from gnnloom.storage.matrix.fingerprint import fingerprint_ids, scan_rows


def test_a_fingerprint_ignores_the_order_of_ids() -> None:
    ids = np.random.default_rng(0).integers(0, 2**40, 1000)
    assert fingerprint_ids(ids, 0) == fingerprint_ids(np.sort(ids), 0)
    assert fingerprint_ids(ids, 0) != fingerprint_ids(ids, 1)
    assert fingerprint_ids(ids, 0) != fingerprint_ids(ids[1:], 0)
    assert fingerprint_ids(ids, 0) != fingerprint_ids(ids + 1, 0)


def test_the_backward_fingerprint_is_the_forward_one_of_the_transpose() -> None:
    matrix: Any = scipy.sparse.random_array((40, 40), density=0.1, rng=np.random.default_rng(0), format="csr")
    forward, backward, wrong = scan(matrix)
    assert wrong == -1
    assert scan(matrix.T.tocsr())[:2] == (backward, forward)
    assert forward != backward


def test_columns_that_do_not_ascend_are_found() -> None:
    matrix = scipy.sparse.csr_array((np.ones(3), np.array([0, 2, 1]), np.array([0, 1, 3])), shape=(2, 3))
    indptr = matrix.indptr.astype(np.int64)
    assert scan_rows(indptr, 0, matrix.indices, np.empty(0, np.uint32), 0, -1, 3, False)[3] == 2


def scan(matrix: Any) -> tuple[int, int, int]:
    matrix.sort_indices()
    indptr = matrix.indptr.astype(np.int64)
    values = matrix.data.astype(np.float32).view(np.uint32)
    forward, backward, _, wrong = scan_rows(indptr, 0, matrix.indices, values, 0, -1, matrix.shape[1], False)
    return int(forward), int(backward), int(wrong)
