"""Bias, ReLU and dropout in one pass give the bits of the three operations one after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gnnloom.trainer.kernels.c.calls import c_rows
from gnnloom.trainer.kernels.c.library import all_libraries
from gnnloom.trainer.kernels.dispatch import Dropout, rectify
from gnnloom.trainer.place.arrays import sum_dtype
from gnnloom.trainer.place.contract import LANES, RowPass, RowStep
from gnnloom.trainer.place.place import Place
from support.covering import examples, few_of
from support.gradients import backward

VERTEX = np.arange(5, 205, dtype=np.int64)


def _gradients(result: Tensor, output: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(9)
    backward(result, torch.randn(result.shape, generator=generator, dtype=result.dtype))
    assert output.grad is not None
    assert bias.grad is not None
    return result.detach(), output.grad, bias.grad


@pytest.mark.parametrize(
    ("probability", "dim", "in_place"), few_of([0.0, 0.4], [1, 31, 32, 70], [False, True], together=2)
)
def test_one_pass_has_the_bits_of_three(probability: float, dim: int, in_place: bool) -> None:
    generator, dropout = torch.Generator().manual_seed(dim), Dropout(probability, 3, Place(num_threads=2))
    pair = torch.randn(len(VERTEX), dim, generator=generator), torch.randn(dim, generator=generator)
    separate, joint = ([tensor.clone().requires_grad_() for tensor in pair] for _ in range(2))
    expected = dropout.apply(torch.relu(separate[0] + separate[1]), VERTEX, 4, 1, 2)
    # A leaf cannot be overwritten.
    output = joint[0] * 1
    found = rectify(output, joint[1], dropout.mask(VERTEX, 4, 1, 2), dropout.place, in_place=in_place)
    assert (found.data_ptr() == output.data_ptr()) == in_place
    for one, other in zip(_gradients(expected, *separate), _gradients(found, *joint), strict=True):
        assert torch.equal(one, other)


def test_numbers_that_are_not_finite_pass() -> None:
    odd = torch.tensor([[torch.nan, torch.inf, -torch.inf, -1.0]])
    result = rectify(odd, None, None, Place())
    assert bool(result[0, 0].isnan())
    assert result[0, 1:].tolist() == [torch.inf, 0.0, 0.0]


@pytest.mark.parametrize(("probability", "dim"), few_of([0.0, 0.4], [1, 31, 70], together=1))
def test_bfloat16_is_computed_in_float32_and_rounded_once(probability: float, dim: int) -> None:
    generator, dropout = torch.Generator().manual_seed(dim), Dropout(probability, 3, Place(num_threads=2))
    output = torch.randn(len(VERTEX), dim, generator=generator).bfloat16()
    bias, mask = torch.randn(dim, generator=generator), dropout.mask(VERTEX, 4, 1, 2)
    results, gradients, of_biases = list[Tensor](), list[Tensor](), list[Tensor]()
    for rows in (output.float(), output):
        leaf, added = rows.clone().requires_grad_(), bias.clone().requires_grad_()
        results.append(rectify(leaf, added, mask, dropout.place))
        numbers = torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
        backward(results[-1], numbers.to(rows.dtype))
        assert leaf.grad is not None
        assert added.grad is not None
        gradients.append(leaf.grad)
        of_biases.append(added.grad)
    assert torch.equal(results[0].bfloat16(), results[1])
    assert torch.equal(gradients[0].bfloat16(), gradients[1])
    # The gradient of the bias is a sum in float32 of rounded numbers.
    assert of_biases[1].dtype == torch.float32
    torch.testing.assert_close(of_biases[1], gradients[1].float().sum(0), rtol=1e-4, atol=1e-4)


def test_bfloat16_that_is_not_finite_passes() -> None:
    odd = torch.tensor([[torch.nan, torch.inf, -torch.inf, -1.0]]).bfloat16()
    result = rectify(odd, None, None, Place())
    assert bool(result[0, 0].isnan())
    assert result[0, 1:].tolist() == [torch.inf, 0.0, 0.0]


@settings(max_examples=examples(60), deadline=None)
@given(
    step=st.sampled_from(RowStep),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    shape=st.tuples(st.integers(0, 9), st.integers(0, 100)),
    masked=st.booleans(),
    in_place=st.booleans(),
    seed=st.integers(0, 99),
)
def test_every_instruction_set_gives_the_same_bits(
    step: RowStep, dtype: torch.dtype, shape: tuple[int, int], masked: bool, in_place: bool, seed: int
) -> None:
    (num_rows, dim), generator = shape, torch.Generator().manual_seed(seed)
    source = torch.randn(shape, generator=generator).to(dtype)
    # Zeros of both signs, and what is not finite.
    source.view(-1)[::7] = torch.tensor([0.0, -0.0, torch.nan, torch.inf, -torch.inf], dtype=dtype)[seed % 5]
    words = torch.randint(-(2**31), 2**31, (num_rows, -(-dim // LANES)), dtype=torch.int32, generator=generator)
    bias = torch.randn(dim, generator=generator).to(sum_dtype(dtype))
    mask = Dropout(0.4, seed, Place()).mask(np.arange(num_rows) + (1 << 33), 5, 1, 2)
    chosen = mask if masked or step is RowStep.DROP else None
    found = []
    for library in all_libraries():
        copy, passed = source.clone(), words.clone()
        result = copy if in_place else torch.full_like(source, 7)
        rows = RowPass(step, copy, result, bias, passed, chosen, 1 / 0.6)
        c_rows(library, rows)(0, num_rows)
        found.append((result.view(torch.uint8), passed))
    for other in found[1:]:
        assert all(torch.equal(*pair) for pair in zip(found[0], other, strict=True))


@pytest.mark.parametrize("spends", [False, True])
def test_a_gradient_that_nothing_else_needs_is_overwritten(spends: bool) -> None:
    output = torch.randn((4, 8), requires_grad=True)
    result = rectify(output, None, None, Place(), spends_gradient=spends)
    gradient = torch.ones(4, 8)
    # Not through a product, which has a gradient of its own.
    result.backward(gradient)  # type: ignore[no-untyped-call]
    assert output.grad is not None
    assert torch.equal(output.grad, (output > 0).float())
    assert (gradient.min() == 0) == spends
