"""Optimizers compute what torch's compute, weight decay included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gnnloom.storage.runs.checkpoint import checkpoint_epochs
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.layout.partial_parameters import PartialParameter, RowGradient
from gnnloom.trainer.place.arrays import array_dtype
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.training.state.checkpoint_writer import CheckpointWriter, Destination
from gnnloom.trainer.training.state.optimizer import OPTIMIZERS
from support.lone import LoneCommunicator
from support.tolerance import assert_close

PEERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("name", list(PEERS))
def test_ten_steps_equal_those_of_torch(name: str, decay: float) -> None:
    generator = torch.Generator().manual_seed(1)
    shapes = {"weight": (4, 3), "bias": (3,), "unreached": (2,), "seldom": (2,)}
    start = {key: torch.randn(shape, generator=generator, dtype=torch.float64) for key, shape in shapes.items()}
    mine, theirs = ({key: nn.Parameter(value.clone()) for key, value in start.items()} for _ in range(2))
    # The bias does not decay, as the first layer alone does with --weight-decay-layers first.
    decays = {"weight": decay, "bias": 0.0, "unreached": decay, "seldom": decay}
    optimizer = OPTIMIZERS[name](mine, decays, 0.05, Place())
    groups = [{"params": [theirs[key]], "weight_decay": decays[key]} for key in theirs]
    peer = PEERS[name](groups, lr=0.05)
    for step in range(10):
        for parameters in (mine, theirs):
            for key in ("weight", "bias"):
                parameters[key].grad = torch.sin(parameters[key].detach() * (step + 1))
            # A parameter without a gradient is left alone, and its steps are not counted.
            parameters["unreached"].grad = None
            parameters["seldom"].grad = torch.cos(parameters["seldom"].detach()) if step % 3 == 1 else None
        optimizer.step()
        peer.step()
    for key in shapes:
        assert_close(mine[key].detach().numpy(), theirs[key].detach().numpy(), steps=30)
    assert torch.equal(mine["unreached"].detach(), start["unreached"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", list(PEERS))
def test_twenty_steps_on_some_rows_equal_those_of_sparse_optimizers(name: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    start = torch.randn((12, 3), generator=generator, dtype=dtype)
    mine, theirs = PartialParameter(start.clone()), nn.Parameter(start.clone())
    optimizer = OPTIMIZERS[name]({"feature": mine}, {"feature": 0.0}, 0.05, Place(dtype))
    peer = torch.optim.SGD([theirs], lr=0.05) if name == "sgd" else torch.optim.SparseAdam([theirs], lr=0.05)
    # torch warns if nobody says whether to check.
    with torch.sparse.check_sparse_tensor_invariants():  # type: ignore[no-untyped-call]
        for step in range(20):
            # Some steps change no row, and count; others have no gradient at all, and do not.
            chosen = torch.randperm(11, generator=generator)[: (step * 5) % 7]
            gradients = torch.sin(theirs.detach()[chosen] * (step + 1))
            if step % 6 != 2:
                mine.row_gradient = RowGradient(chosen, gradients.clone())
                theirs.grad = torch.sparse_coo_tensor(chosen[None], gradients, start.shape)
                peer.step()
            optimizer.step()
            assert mine.row_gradient is None
    np_dtype = array_dtype(dtype)
    assert_close(mine.detach().numpy(), theirs.detach().numpy(), steps=20, bits=4, dtype=np_dtype)
    np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), atol=1e-6, rtol=0)
    assert torch.equal(mine.detach()[11], start[11])
    if name == "adam":
        state = peer.state[theirs]
        assert int(optimizer.state["step"]) == state["step"] == 17
        for moment, expected in (("first", "exp_avg"), ("second", "exp_avg_sq")):
            found = optimizer.state[f"feature/{moment}"].numpy()
            assert_close(found, state[expected].numpy(), steps=20, bits=4, dtype=np_dtype)


def test_parts_of_the_gradient_of_a_row_are_added_in_their_order() -> None:
    rows = torch.tensor([4, 2, 7, 2, 4, 2])
    # Other orders have other bits: the large numbers would swallow the small one.
    values = torch.tensor([[1.0], [1e17], [5.0], [-1e17], [2.0], [1.0]], dtype=torch.float64)
    found = RowGradient.summed(rows, values, Place(torch.float64))
    assert dict(zip(found.rows.tolist(), found.values[:, 0].tolist(), strict=True)) == {2: 1.0, 4: 3.0, 7: 5.0}
    alone = RowGradient.summed(rows[:3], values[:3], Place(torch.float64))
    assert torch.equal(alone.rows, rows[:3])
    assert torch.equal(alone.values, values[:3])


def test_a_diverged_model_is_not_kept(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    optimizer = OPTIMIZERS["sgd"](dict(model.named_parameters()), {"weight": 0.0, "bias": 0.0}, 0.1, Place())
    writer = CheckpointWriter(LoneCommunicator())
    writer.save(1, model, optimizer, [Destination(tmp_path, 2, {})])
    writer.finish()
    with torch.no_grad():
        model.weight[0, 0] = torch.inf
    with pytest.raises(CollectiveError, match=r"parameter weight .*epoch 2;"):
        writer.save(2, model, optimizer, [Destination(tmp_path, 2, {})])
    assert checkpoint_epochs(tmp_path) == [1]
