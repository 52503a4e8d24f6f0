"""Sums over pairs and their gradients are those of one pass over all pairs, a few pairs at a time or all at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gnnloom.trainer.links.decoder import Decoder
from gnnloom.trainer.links.decoders.registry import DECODERS
from gnnloom.trainer.links.losses import LOSSES
from gnnloom.trainer.links.pair_sums import pair_loss, sum_over_pairs
from gnnloom.trainer.place.place import Place
from support.covering import few_of
from support.tolerance import assert_close

DIM, NUM_ROWS, NUM_PAIRS = 5, 30, 70


def given_rows() -> Tensor:
    rows = torch.randn(NUM_ROWS, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return rows.requires_grad_()


def given_ends(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    # The last rows belong to no pair.
    return [rng.integers(0, NUM_ROWS - 3, shape) for shape in (NUM_PAIRS, NUM_PAIRS, (NUM_PAIRS, count))]


def gradients(rows: Tensor, decoder: Decoder) -> list[np.ndarray]:
    """What a backward pass has left behind."""
    found = []
    for each in (rows, *decoder.parameters()):
        assert each.grad is not None
        found.append(each.grad.numpy().copy())
        each.grad = None
    return found


@pytest.mark.parametrize(
    ("name", "loss", "count", "at_once"),
    few_of(
        DECODERS,
        LOSSES,
        [pytest.param(1, 8), pytest.param(3, 8), pytest.param(1, 1), pytest.param(3, 1000)],
        together=2,
    ),
)
def test_a_loss_and_its_gradients_are_those_of_all_pairs_at_once(
    name: str, loss: str, count: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnnloom.trainer.links.pair_sums._ROWS", at_once)
    rows, ends, decoder = given_rows(), given_ends(count), DECODERS[name].load()(DIM, Place(torch.float64), 1)
    terms = LOSSES[loss].num_terms(NUM_PAIRS, count)
    # With a factor, as if the loss were one of several.
    (pair_loss(decoder, LOSSES[loss], rows, ends, terms, 0.5) * 3).backward()  # type: ignore[no-untyped-call]
    found = gradients(rows, decoder)
    source, target, negative = (rows[torch.from_numpy(each)] for each in ends)
    scores = decoder(source.repeat_interleave(count, 0), negative.flatten(0, 1)).view(NUM_PAIRS, count)
    expected = LOSSES[loss](decoder(source, target), scores, terms, 0.5)
    (expected * 3).backward()  # type: ignore[no-untyped-call]
    for mine, whole in zip(found, gradients(rows, decoder), strict=True):
        assert_close(mine, whole)
    assert not found[0][NUM_ROWS - 3 :].any()
    again = pair_loss(decoder, LOSSES[loss], rows, ends, terms, 0.5)
    assert_close(again.detach().numpy(), expected.detach().numpy())
    again.backward()  # type: ignore[no-untyped-call]
    for mine, thrice in zip(gradients(rows, decoder), found, strict=True):
        assert_close(mine * 3, thrice)


def test_terms_may_need_labels_of_the_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnloom.trainer.links.pair_sums._ROWS", 9)
    decoder = DECODERS["mlp"].load()(DIM, Place(torch.float64), 1, num_outputs=4)
    rows, ends = given_rows(), given_ends(1)[:2]
    label = torch.from_numpy(np.random.default_rng(2).integers(0, 4, NUM_PAIRS))

    def terms(some: slice, rows_of: Sequence[Tensor]) -> Tensor:
        loss = functional.cross_entropy(decoder(*rows_of), label[some], reduction="sum")
        return loss.to(torch.float64) / NUM_PAIRS

    found = sum_over_pairs(rows, ends, terms, decoder, decoder.place)
    found.backward()  # type: ignore[no-untyped-call]
    mine = gradients(rows, decoder)
    expected = functional.cross_entropy(decoder(*(rows[torch.from_numpy(each)] for each in ends)), label)
    expected.backward()  # type: ignore[no-untyped-call]
    assert_close(found.detach().numpy(), expected.detach().numpy())
    for one, other in zip(mine, gradients(rows, decoder), strict=True):
        assert_close(one, other)


def test_fixed_rows_and_fixed_parameters_get_no_gradient() -> None:
    decoder = DECODERS["distmult"].load()(DIM, Place(torch.float64), 1)
    ends, loss = given_ends(2), LOSSES["bpr"]
    rows = given_rows()
    pair_loss(decoder, loss, rows.detach(), ends, 10).backward()  # type: ignore[no-untyped-call]
    weight = decoder.get_parameter("weight")
    assert weight.grad is not None
    weight.grad = None
    weight.requires_grad_(False)
    pair_loss(decoder, loss, rows, ends, 10).backward()  # type: ignore[no-untyped-call]
    assert weight.grad is None
    assert rows.grad is not None
    with torch.no_grad():
        value = pair_loss(decoder, loss, rows, ends, 10)
    assert not value.requires_grad
    assert_close(value.numpy(), pair_loss(decoder, loss, rows.detach(), ends, 10).numpy())


def test_no_pairs_contribute_nothing_and_take_part_in_the_backward_pass() -> None:
    decoder, rows = DECODERS["mlp"].load()(DIM, Place(torch.float64), 1), given_rows()
    ends = [each[:0] for each in given_ends(2)]
    found = pair_loss(decoder, LOSSES["ce"], rows, ends, 10)
    found.backward()  # type: ignore[no-untyped-call]
    assert float(found.detach()) == 0
    assert not any(each.any() for each in gradients(rows, decoder))
