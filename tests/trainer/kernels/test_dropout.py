"""The dropout's masks: reproducible, uncorrelated, and of the stated rate."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnloom.trainer.kernels.dispatch import Dropout
from gnnloom.trainer.place.place import Place
from support.gradients import backward


def _drop(
    vertex: NDArray[np.int64],
    probability: float = 0.3,
    columns: slice = slice(0, 40),
    seed: int = 1,
    epoch: int = 0,
    layer: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ones, and the same after dropout."""
    ones = torch.ones(len(vertex), columns.stop - columns.start, dtype=torch.float64, requires_grad=True)
    return ones, Dropout(probability, seed, Place(num_threads=2)).apply(ones, vertex, columns.start, epoch, layer)


def test_dropout_drops_the_stated_share_and_keeps_the_mean() -> None:
    _, dropped = _drop(np.arange(5000))
    share = float((dropped == 0).double().mean())
    deviation = (0.3 * 0.7 / (5000 * 40)) ** 0.5
    assert abs(share - 0.3) < 5 * deviation
    assert set(dropped.flatten().tolist()) == {0.0, 1 / 0.7}


def test_dropout_depends_on_seed_epoch_layer_and_vertex_only() -> None:
    vertex = np.array([3, 17, 2**24 + 1, 2**31 + 5, 2**40])
    _, dropped = _drop(vertex)
    for number in range(len(vertex)):
        assert torch.equal(_drop(vertex[number : number + 1])[1][0], dropped[number])
    others: tuple[dict[str, Any], ...] = ({"seed": 2}, {"epoch": 1}, {"layer": 1})
    for other in others:
        assert not torch.equal(_drop(vertex, **other)[1], dropped)
    assert len({tuple(row) for row in dropped.tolist()}) == len(vertex), "two vertices share a mask"


def test_a_rank_with_some_of_the_columns_drops_the_same_features() -> None:
    vertex = np.arange(7, 90, 3)
    _, whole = _drop(vertex)
    assert torch.equal(_drop(vertex, columns=slice(13, 29))[1], whole[:, 13:29])


def test_rows_and_columns_of_masks_are_uncorrelated() -> None:
    mask = (_drop(np.arange(2000), probability=0.5)[1] != 0).double().detach().numpy()
    for correlation in (np.corrcoef(mask.T), np.corrcoef(mask[:200])):
        np.fill_diagonal(correlation, 0)
        samples = 2000 if correlation.shape == (40, 40) else 40
        assert np.abs(correlation).max() < 6 / samples**0.5


def test_dropout_goes_backward_through_the_same_mask() -> None:
    ones, dropped = _drop(np.arange(50))
    backward(dropped, torch.full_like(dropped, 2.0))
    assert ones.grad is not None
    assert torch.equal(ones.grad, 2 * dropped.detach())


def test_probability_zero_returns_the_features_themselves() -> None:
    ones, dropped = _drop(np.arange(3), probability=0.0)
    assert dropped is ones


def test_bfloat16_loses_the_same_features_as_float32_and_is_rounded_once() -> None:
    vertex, dropout = np.arange(300), Dropout(0.3, 1, Place(num_threads=2))
    given = torch.randn((300, 37), generator=torch.Generator().manual_seed(0)).bfloat16()
    wide, narrow = (dropout.apply(each, vertex, 0, 0, 0) for each in (given.float(), given))
    assert torch.equal(wide.bfloat16(), narrow)
    assert 0.2 < float((narrow == 0).double().mean()) < 0.4
