"""Conversions, sums and dense products of bfloat16 against torch and float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnloom.storage import CSR
from gnnloom.trainer.kernels import gemm
from gnnloom.trainer.kernels.dispatch import (
    add_widened,
    column_sums,
    converted,
    matmul,
    scaled_rows,
    sparse_product,
    weight_gradient,
)
from gnnloom.trainer.kernels.elementwise import add_in_order, chunk_groups, in_chunks
from gnnloom.trainer.place.place import Place


def _numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_numbers_are_rounded_as_torch_rounds_them() -> None:
    # Every upper half, with lower halves below, at and above the middle of two bfloat16 numbers.
    upper = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
    bits = np.concatenate([upper | np.uint32(lower) for lower in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    wide, found = torch.from_numpy(bits.view(np.float32)), torch.empty((len(bits), 1), dtype=torch.bfloat16)
    # Each number is the factor of a row whose sum is one.
    matrix = CSR(0, np.arange(len(bits) + 1), np.zeros(len(bits), np.int32), None, 1)
    sparse_product(matrix, Place(torch.bfloat16)).multiply(torch.ones((1, 1), dtype=torch.bfloat16), found, wide)
    expected = wide.bfloat16()
    assert torch.equal(found[:, 0].isnan(), expected.isnan())
    assert torch.equal(found[~expected.isnan(), 0], expected[~expected.isnan()])


def test_column_sums_are_formed_in_float32() -> None:
    matrix = (_numbers(5000, 7) + 1).bfloat16()
    found = column_sums(matrix, Place())
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, matrix.double().sum(0), rtol=1e-5)


@pytest.mark.parametrize("num_rows", [0, 1, 3000])
@pytest.mark.parametrize("in_place", [True, False])
def test_rows_are_scaled_in_float32_and_rounded_once(num_rows: int, in_place: bool) -> None:
    # More rows than are widened at a time.
    matrix, factors = _numbers(num_rows, 100).bfloat16(), _numbers(num_rows)
    expected = (matrix.float() * factors.unsqueeze(1)).bfloat16()
    found = scaled_rows(matrix, factors, Place(), matrix if in_place else None)
    assert torch.equal(found, expected)
    assert (found is matrix) is in_place


@pytest.mark.parametrize("num_rows", [0, 1, 3000])
def test_bfloat16_is_added_to_float32_without_rounding(num_rows: int) -> None:
    total, summand = _numbers(num_rows, 100), (_numbers(num_rows, 100) + 1).bfloat16()
    expected = total + summand.float()
    add_widened(total, summand, Place())
    assert torch.equal(total, expected)


@pytest.mark.parametrize(("num_rows", "most"), [(0, 3), (1, 3), (5, 1), (60, 3), (61, 4), (9, 0)])
def test_groups_of_chunks_cover_every_row_once_and_sums_add_up(num_rows: int, most: int) -> None:
    groups = list(chunk_groups(num_rows, 5, most, Place()))
    assert [row for rows in groups for row in range(num_rows)[rows]] == list(range(num_rows))
    matrix, total = torch.arange(num_rows * 3).reshape(num_rows, 3).float(), torch.ones(3)
    for rows in groups:
        assert rows.stop - rows.start <= 5 * max(1, most)
        add_in_order(total, in_chunks(matrix[rows], 5).sum(1), Place())
    assert torch.equal(total, 1 + matrix.sum(0))


def test_conversion_goes_back_with_the_gradient() -> None:
    leaf = _numbers(4, 3).requires_grad_()
    found = converted(leaf, torch.bfloat16, Place())
    found.float().square().sum().backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    assert leaf.grad.dtype == torch.float32
    assert torch.equal(leaf.grad, (2 * found.detach().float()).bfloat16().float())
    assert converted(leaf, torch.float32, Place()) is leaf


@pytest.mark.slow
@pytest.mark.parametrize("fast", [True, False])
def test_products_are_rounded_once_and_gradients_of_weights_are_float32(
    monkeypatch: pytest.MonkeyPatch, fast: bool
) -> None:
    if not fast:
        monkeypatch.setattr(gemm, "_multiplies_bfloat16", lambda: False)
    space = Place()
    features, gradient, weight = _numbers(5000, 24).bfloat16(), _numbers(5000, 9).bfloat16(), _numbers(24, 9)
    product = matmul(features, weight, space)
    exact = features.double() @ weight.bfloat16().double()
    assert product.dtype == torch.bfloat16
    torch.testing.assert_close(product.double(), exact, rtol=2**-8, atol=1e-4)
    expected = features.double().T @ gradient.double()
    for transposed in (False, True):
        found = weight_gradient(features, gradient, space, transposed=transposed)
        assert found.dtype == torch.float32
        # Three products of up to 2048 rows, each rounded to eight bits: of sums of the size of the root of their rows.
        assert float((found.double() - expected).abs().max()) < 3 * 2**-9 * 5 * 2048**0.5
