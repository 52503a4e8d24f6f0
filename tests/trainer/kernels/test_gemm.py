"""The gradient of a weight in float32 over very many rows keeps its digits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnloom.trainer.kernels.gemm import weight_gradient
from gnnloom.trainer.place.place import Place


@pytest.mark.parametrize(
    ("num_rows", "shape"), [(60_000, (1, 5)), (60_000, (3, 2)), (60_000, (16, 8)), (1_000_000, (16, 16))]
)
def test_the_gradient_of_a_weight_in_float32_is_that_in_float64_to_1e_5(num_rows: int, shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    features, gradient = (
        (1.0009 + 1e-4 * torch.randn(num_rows, dim, generator=generator)).to(torch.float32) for dim in shape
    )
    expected = features.double().numpy().T @ gradient.double().numpy()
    for transposed in (False, True):
        found = weight_gradient(features, gradient, Place(), transposed=transposed)
        assert found.dtype == torch.float32
        assert found.is_contiguous()
        np.testing.assert_allclose(found.double(), expected, rtol=1e-5)
