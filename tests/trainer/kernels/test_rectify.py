"""Bias, ReLU and dropout in one pass give the bits of the three operations one after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from gnnloom.trainer.kernels.dispatch import Dropout, Threads, rectify

VERTEX = np.arange(5, 205, dtype=np.int64)


def _gradients(result: Tensor, output: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(9)
    result.backward(torch.randn(result.shape, generator=generator, dtype=result.dtype))  # type: ignore[no-untyped-call]
    assert output.grad is not None
    assert bias.grad is not None
    return result.detach(), output.grad, bias.grad


@pytest.mark.parametrize("probability", [0.0, 0.4])
@pytest.mark.parametrize("dim", [1, 31, 32, 70])
@pytest.mark.parametrize("in_place", [False, True])
def test_one_pass_has_the_bits_of_three(probability: float, dim: int, in_place: bool) -> None:
    generator, dropout = torch.Generator().manual_seed(dim), Dropout(probability, 3, Threads(2))
    given = torch.randn(len(VERTEX), dim, generator=generator), torch.randn(dim, generator=generator)
    separate, joint = ([tensor.clone().requires_grad_() for tensor in given] for _ in range(2))
    expected = dropout.apply(torch.relu(separate[0] + separate[1]), VERTEX, 4, 1, 2)
    # A leaf cannot be overwritten.
    output = joint[0] * 1
    found = rectify(output, joint[1], dropout.mask(VERTEX, 4, 1, 2), dropout, in_place=in_place)
    assert (found.data_ptr() == output.data_ptr()) == in_place
    for one, other in zip(_gradients(expected, *separate), _gradients(found, *joint), strict=True):
        assert torch.equal(one, other)


def test_numbers_that_are_not_finite_pass() -> None:
    given = torch.tensor([[torch.nan, torch.inf, -torch.inf, -1.0]])
    result = rectify(given, None, None, Dropout(0.0, 0, Threads(1)))
    assert bool(result[0, 0].isnan())
    assert result[0, 1:].tolist() == [torch.inf, 0.0, 0.0]
