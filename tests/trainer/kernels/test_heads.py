"""Scores of attention heads and their gradients, compared with plain torch in float64, and their memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnloom.trainer.kernels.heads import head_scores
from gnnloom.trainer.place.place import Place
from support.tolerance import assert_close

#: Rows of several ranges that are formed at a time, the last of them short.
ROWS, HEADS, DIM = 40_001, 4, 16


@pytest.mark.parametrize(("num_targets", "has_target"), [(ROWS, True), (12_345, True), (ROWS, False)])
def test_gradients_of_attention_vectors_are_those_of_dense_torch(num_targets: int, has_target: bool) -> None:
    torch.manual_seed(1)
    values, source, target = torch.randn(ROWS, HEADS, DIM), torch.randn(HEADS, DIM), torch.randn(HEADS, DIM)
    weight = torch.randn(ROWS, HEADS), torch.randn(num_targets, HEADS)

    given = [tensor.clone().requires_grad_() for tensor in (values, source, target)]
    _, *scores = head_scores(given[0], given[1], given[2] if has_target else None, num_targets, Place())
    of_source, of_target = scores
    loss = (of_source * weight[0]).sum()
    if has_target:
        loss = loss + (of_target * weight[1]).sum()
    loss.backward()  # type: ignore[no-untyped-call]

    expected = [tensor.double().requires_grad_() for tensor in (values, source, target)]
    wanted = ((expected[0] * expected[1]).sum(2) * weight[0]).sum()
    if has_target:
        wanted = wanted + ((expected[0][:num_targets] * expected[2]).sum(2) * weight[1]).sum()
    wanted.backward()  # type: ignore[no-untyped-call]
    for found, reference in zip(given[: 2 + has_target], expected, strict=False):
        assert found.grad is not None
        assert reference.grad is not None
        assert_close(found.grad.double().numpy(), reference.grad.numpy(), dtype=np.float32)


def test_no_matrix_as_large_as_the_values_is_formed_for_the_gradient_of_a_vector() -> None:
    place, values = Place(), torch.randn(ROWS, HEADS, DIM)
    source, target = torch.randn(HEADS, DIM, requires_grad=True), torch.randn(HEADS, DIM, requires_grad=True)
    _, of_source, of_target = head_scores(values.requires_grad_(), source, target, ROWS, place)
    (of_source.sum() + of_target.sum()).backward()  # type: ignore[no-untyped-call]
    assert source.grad is not None
    # Two matrices of scores, and a few rows.
    assert place.workspace.nbytes < values.numel() * values.element_size() // 2
