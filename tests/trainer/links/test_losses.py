"""Losses of pairs are those of their formulas, for large scores too, and the ranks' contributions add up to them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from gnnloom.trainer.links.choices import PAIR_LOSSES
from gnnloom.trainer.links.losses import LOSSES
from support.covering import few_of
from support.tolerance import assert_close

MARGIN = 0.75


def scores(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    positive = torch.randn(12, generator=generator, dtype=torch.float64)
    negative = torch.randn(12, count, generator=generator, dtype=torch.float64)
    return positive.requires_grad_(), negative.requires_grad_()


def formula(name: str, positive: np.ndarray, negative: np.ndarray) -> float:
    difference = positive[:, None] - negative
    if name == "bce":
        terms = [np.log1p(np.exp(-positive)), np.log1p(np.exp(negative)).ravel()]
        return float(np.concatenate(terms).mean())
    if name == "bpr":
        return float(np.log1p(np.exp(-difference)).mean())
    if name == "margin":
        return float(np.maximum(0, MARGIN - difference).mean())
    total = np.exp(positive) + np.exp(negative).sum(1)
    return float(-np.log(np.exp(positive) / total).mean())


def test_every_name_has_a_loss() -> None:
    assert list(LOSSES) == list(PAIR_LOSSES)


@pytest.mark.parametrize(("name", "count"), few_of(LOSSES, [1, 4], together=1))
def test_a_loss_and_its_gradient_are_those_of_the_formula(name: str, count: int) -> None:
    positive, negative = scores(count)
    loss = LOSSES[name]
    terms = loss.num_terms(12, count)
    found = loss(positive, negative, terms, MARGIN)
    assert found.dtype == torch.float64
    assert_close(found.detach().numpy(), formula(name, positive.detach().numpy(), negative.detach().numpy()))
    assert torch.autograd.gradcheck(lambda one, other: loss(one, other, terms, MARGIN), (positive, negative))
    parts = [slice(0, 5), slice(5, 5), slice(5, 12)]
    total = sum(loss(positive[part], negative[part], terms, MARGIN).detach() for part in parts)
    assert_close(np.asarray(total), found.detach().numpy())


def test_binary_cross_entropy_is_that_of_all_scores_in_one_list() -> None:
    positive, negative = scores(3)
    every = torch.cat([positive, negative.flatten()])
    label = torch.cat([torch.ones(12), torch.zeros(36)]).double()
    expected = torch.nn.functional.binary_cross_entropy_with_logits(every, label)
    found = LOSSES["bce"](positive, negative, LOSSES["bce"].num_terms(12, 3))
    assert_close(found.detach().numpy(), expected.detach().numpy())


@pytest.mark.parametrize("name", LOSSES)
def test_large_scores_overflow_nowhere(name: str) -> None:
    positive = torch.tensor([1e4, -1e4], requires_grad=True)
    negative = torch.tensor([[-1e4], [1e4]], requires_grad=True)
    found = LOSSES[name](positive, negative, 1)
    found.backward()  # type: ignore[no-untyped-call]
    # One pair is scored perfectly, the other one as wrongly as can be.
    assert_close(found.detach().numpy(), 2e4 + (1 if name == "margin" else 0), dtype=np.float32)
    for each in (positive, negative):
        assert each.grad is not None
        assert bool(each.grad.isfinite().all())
        assert bool((each.grad[0] == 0).all())
        assert bool((each.grad[1].abs() == 1).all())


@pytest.mark.parametrize("name", LOSSES)
def test_a_rank_without_pairs_contributes_nothing(name: str) -> None:
    positive, negative = torch.zeros(0, requires_grad=True), torch.zeros(0, 2, requires_grad=True)
    found = LOSSES[name](positive, negative, 0)
    found.backward()  # type: ignore[no-untyped-call]
    assert float(found.detach()) == 0
    assert positive.grad is not None
