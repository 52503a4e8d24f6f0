"""Features that are not finite numbers are refused by the name of their vertex, however large the others are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnloom.storage.errors import InputError
from gnnloom.trainer.data.vertex_data import check_finite
from gnnloom.trainer.place.place import Place

#: More numbers than are checked at once.
SHAPE = (3_000, 100)


def _check(feature: torch.Tensor) -> None:
    check_finite(feature, "shard/feature", lambda: np.arange(len(feature)) + 1_000_000, Place())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_numbers_whose_sum_is_not_finite_are_features(dtype: torch.dtype) -> None:
    most = torch.finfo(dtype).max
    for feature in (torch.full(SHAPE, most, dtype=dtype), torch.full(SHAPE, -most, dtype=dtype)):
        assert not feature.sum().isfinite()
        _check(feature)
    _check(torch.empty((0, 100), dtype=dtype))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("row", [0, 1_234, 2_999])
@pytest.mark.parametrize("others", [0.0, torch.finfo(torch.float32).max])
def test_a_number_that_is_not_finite_is_refused_by_its_vertex(wrong: float, row: int, others: float) -> None:
    feature = torch.full(SHAPE, others)
    feature[row, 57] = wrong
    with pytest.raises(InputError, match=rf"shard/feature: vertex {1_000_000 + row} has a feature"):
        _check(feature)


def test_infinities_of_both_signs_are_refused() -> None:
    feature = torch.zeros(SHAPE)
    feature[3, 0], feature[4, 0] = float("inf"), -float("inf")
    with pytest.raises(InputError, match="vertex 1000003 "):
        _check(feature)
