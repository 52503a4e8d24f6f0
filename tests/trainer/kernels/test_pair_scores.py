"""The bits of a score depend on its two rows only, wherever they are in a block and whatever the number of threads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnloom.trainer.kernels.dispatch import score_block, score_pairs
from gnnloom.trainer.place.place import Place
from support.tolerance import assert_close


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [0, 1, 3, 4, 7, 64])
@pytest.mark.parametrize("num_right", [0, 1, 255, 256, 1025])
def test_scores_are_scalar_products_and_equal_rows_have_equal_ones(
    dtype: torch.dtype, dim: int, num_right: int
) -> None:
    generator = torch.Generator().manual_seed(dim)
    left = torch.randn(5, dim, generator=generator, dtype=dtype)
    right = torch.randn(num_right, dim, generator=generator, dtype=dtype)
    # Every target occurs several times, in other tiles and at other places of them.
    half = num_right // 2
    right[num_right - half :] = right[:half]
    found = score_block(left, right, Place(dtype))
    assert found.dtype == dtype
    exact = left.double().numpy() @ right.double().numpy().T
    assert_close(found.numpy(), exact, dtype=np.float32 if dtype == torch.float32 else np.float64)
    assert torch.equal(found[:, num_right - half :], found[:, :half])
    for row in range(len(left)):
        pairs = score_pairs(left[row].expand(num_right, dim).contiguous(), right, Place(dtype))
        assert torch.equal(pairs, found[row])
    assert torch.equal(score_block(left, right, Place(dtype, 3)), found)
