"""Optimizers compute what torch's compute, weight decay included."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from gnnloom.storage.runs.checkpoint import checkpoint_epochs
from gnnloom.trainer.comm.agreement import CollectiveError
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


def test_a_diverged_model_is_not_kept(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    optimizer = OPTIMIZERS["sgd"](dict(model.named_parameters()), {"weight": 0.0, "bias": 0.0}, 0.1, Place())
    writer = CheckpointWriter(LoneCommunicator())
    writer.save(1, model, optimizer, [Destination(tmp_path, 2, {})])
    writer.finish()
    with torch.no_grad():
        model.weight[0, 0] = torch.inf
    with pytest.raises(CollectiveError, match=r"parameter weight is not finite after epoch 2; lower the learning rate"):
        writer.save(2, model, optimizer, [Destination(tmp_path, 2, {})])
    assert checkpoint_epochs(tmp_path) == [1]
