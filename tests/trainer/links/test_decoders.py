"""Decoders score pairs as their formulas say, with bits that depend on the two rows only, and exact gradients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gnnloom.storage.descriptors import load_descriptors
from gnnloom.storage.errors import InputError
from gnnloom.trainer.links import decoders
from gnnloom.trainer.links.decoder import Decoder
from gnnloom.trainer.links.decoders.kind import DecoderKind
from gnnloom.trainer.links.decoders.registry import DECODERS, decoder_kind
from gnnloom.trainer.links.perceptron import Perceptron
from gnnloom.trainer.place.place import Place
from support.covering import few_of
from support.plugins import install_plugin
from support.tolerance import assert_close

DIM = 9


def made(name: str, dtype: torch.dtype = torch.float64, num_outputs: int = 1, seed: int = 3) -> Decoder:
    """A decoder whose weights are no longer as they begin."""
    options = {"decoder_hidden": (7, 5)} if name == "mlp" else {}
    decoder: Decoder = DECODERS[name].load()(DIM, Place(dtype), seed, num_outputs, options)
    if name == "distmult":
        with torch.no_grad():
            decoder.get_parameter("weight").copy_(rows(num_outputs, 5, dtype))
    return decoder


def rows(count: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(count, DIM, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def expected(decoder: Decoder, name: str, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """(num_pairs, num_outputs) the scores by their formulas."""
    weights = [each.detach().double().numpy() for each in decoder.parameters()]
    product = source * target
    if name == "dot":
        return np.asarray(product.sum(1, keepdims=True))
    if name == "cosine":
        lengths = np.linalg.norm(source, axis=1) * np.linalg.norm(target, axis=1)
        return np.asarray(product.sum(1, keepdims=True) / np.where(lengths == 0, 1, lengths)[:, None])
    if name == "distmult":
        return np.asarray(product @ weights[0].T)
    for number in range(0, len(weights), 2):
        product = (product if number == 0 else np.maximum(product, 0)) @ weights[number].T + weights[number + 1]
    return np.asarray(product)


@pytest.mark.parametrize(("name", "num_outputs"), few_of(DECODERS, [1, 3], together=1))
def test_scores_and_gradients_are_those_of_the_formula(name: str, num_outputs: int) -> None:
    if num_outputs > 1 and not DECODERS[name].gives_several:
        with pytest.raises(InputError, match=rf"decoder {DECODERS[name].place[1]}: .* 3 scores"):
            made(name, num_outputs=num_outputs)
        return
    decoder = made(name, num_outputs=num_outputs)
    source, target = rows(40, 1), rows(40, 2)
    source[3] = 0
    found = decoder(source, target)
    assert found.shape == ((40,) if num_outputs == 1 else (40, num_outputs))
    assert_close(found.detach().view(40, -1).numpy(), expected(decoder, name, source.numpy(), target.numpy()))
    if DECODERS[name].is_symmetric:
        assert_close(decoder(target, source).detach().numpy(), found.detach().numpy())
    few = source[4:8].clone().requires_grad_(), target[4:8].clone().requires_grad_()
    assert torch.autograd.gradcheck(decoder, few)
    # Of the parameters, and of a row of zeros, where the length of a row has no derivative.
    zero = torch.zeros_like(few[0]).requires_grad_()
    decoder(zero, few[1]).sum().backward()
    assert zero.grad is not None
    assert bool(zero.grad.isfinite().all())
    for parameter in decoder.parameters():
        assert parameter.grad is not None


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_bits_of_a_score_depend_on_its_rows_only(name: str, dtype: torch.dtype) -> None:
    decoder = made(name, dtype)
    source, targets = rows(6, 1, dtype), rows(300, 2, dtype)
    # Equal rows at another place, next to others.
    targets[150:] = targets[:150].flip(0)
    block = decoder.scores_of_block(source, targets)
    assert not block.requires_grad
    assert torch.equal(block[:, 150:].flip(1), block[:, :150])
    if decoder.is_symmetric:
        assert torch.equal(decoder.scores_of_block(targets, source).T, block)
    for number, row in enumerate(source):
        for stop in (1, 2, 7, 300):
            pairs = decoder.scores_of_pairs(row.repeat(stop, 1), targets[:stop])
            assert torch.equal(pairs, block[number, :stop])
        trained = decoder(row.expand_as(targets), targets).detach()
        assert_close(trained.numpy(), block[number].numpy(), dtype=np.float32 if dtype == torch.float32 else float)


def test_weights_are_drawn_from_the_seed() -> None:
    first, same, other = (made("mlp", seed=seed) for seed in (3, 3, 4))
    pairs = list(zip(first.parameters(), same.parameters(), strict=True))
    assert all(torch.equal(one, two) for one, two in pairs)
    assert [each.dtype for each in first.parameters()] == [torch.float64] * 6
    assert not torch.equal(next(first.parameters()), next(other.parameters()))
    (hidden,) = [layer.out_features for layer in list(Perceptron(DIM, Place(), 0).layers)[:-1]]
    assert hidden == DIM


class Difference(Decoder):
    """The negative distance of both rows, scaled."""

    def create_parameters(self) -> None:
        self.scale = nn.Linear(1, 1)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        distance: Tensor = self.scale((source - target).square().sum(1, keepdim=True))
        return -distance.squeeze(1)


class NotThere(Decoder):
    """A class that does not say how it scores."""


def test_a_class_of_the_user_is_a_decoder() -> None:
    kind = decoder_kind(f"{__name__}:Difference")
    assert (kind.help, kind.is_symmetric) == ("The negative distance of both rows, scaled.", False)
    decoder = kind.load()(DIM, Place(torch.float64), 1)
    # More than are scored at a time.
    source, targets = rows(2, 1), rows(1500, 2)
    block = decoder.scores_of_block(source, targets)
    with torch.no_grad():
        assert_close(block[1].numpy(), decoder(source[1].expand_as(targets), targets).numpy())
    assert torch.equal(decoder.scores_of_pairs(source[1:], targets[7:8])[0], block[1, 7])


def test_what_is_no_decoder_is_refused() -> None:
    with pytest.raises(InputError, match="decoder 'dots': expected a name"):
        decoder_kind("dots")
    with pytest.raises(InputError, match=r"expected a subclass of gnnloom\.trainer\.links\.decoder\.Decoder"):
        decoder_kind("collections:Counter")
    with pytest.raises(InputError, match="the class does not define forward"):
        decoder_kind(f"{__name__}:NotThere")


def test_another_package_adds_a_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = f"""
from gnnloom.trainer.links.decoders.kind import DecoderKind
DECODER = DecoderKind(name="difference", order=9, help="Distance", place=("{__name__}", "Difference"))
"""
    install_plugin(tmp_path, "differencepack", source, "gnnloom.decoders", "DECODER")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = load_descriptors(decoders, "DECODER", "gnnloom.decoders", DecoderKind)
    assert list(found) == [*DECODERS, "difference"]
    assert found["difference"].load().__name__ == "Difference"
