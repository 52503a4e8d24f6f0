"""Checkpoints are written while training goes on; what goes wrong then ends the training."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from gnnloom.storage import Catalog
from gnnloom.storage.faults import VARIABLE, forget_plans
from gnnloom.storage.runs import checkpoint as stored
from gnnloom.storage.runs.checkpoint import checkpoint_epochs, read_checkpoint
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.training.state import checkpoint_writer
from gnnloom.trainer.training.state.checkpoint import Snapshot, stored_state, whole_state
from gnnloom.trainer.training.state.checkpoint_writer import CheckpointWriter, Destination
from gnnloom.trainer.training.state.optimizer import SGD, Optimizer, build_optimizer
from support.lone import LoneCommunicator
from support.lone_training import lone_session
from support.problems import problem


class State:
    """A model of one number."""

    def __init__(self, folder: Path) -> None:
        self.model = nn.Linear(1, 1, bias=False)
        self.optimizer: Optimizer = SGD(dict(self.model.named_parameters()), {"weight": 0.0}, 0.1, Place())
        self.folder = folder
        self.writer = CheckpointWriter(LoneCommunicator())

    def save(self, epoch: int, kept: int = 2, *others: Path) -> None:
        """Begin a checkpoint whose only weight is its epoch."""
        with torch.no_grad():
            self.model.weight.fill_(float(epoch))
        wanted = [Destination(self.folder, kept, {}), *(Destination(other, 1, {"best": True}) for other in others)]
        self.writer.save(epoch, self.model, self.optimizer, wanted)

    def weight(self, folder: Path, epoch: int) -> float:
        return float(whole_state(read_checkpoint(folder, epoch))["weight"])


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Publishing waits for this event."""
    gate, publish = threading.Event(), stored.publish_checkpoint

    def wait_and_publish(*arguments: object) -> Path:
        assert gate.wait(60)
        return publish(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint_writer, "publish_checkpoint", wait_and_publish)
    return gate


def test_training_goes_on_while_a_checkpoint_is_written(state: State, gate: threading.Event) -> None:
    state.save(1)
    # The next steps change the weights; the checkpoint has those of its epoch.
    with torch.no_grad():
        state.model.weight.fill_(99.0)
    assert checkpoint_epochs(state.folder) == []
    state.writer.check()
    gate.set()
    state.writer.finish()
    assert checkpoint_epochs(state.folder) == [1]
    assert state.weight(state.folder, 1) == 1.0


@pytest.mark.parametrize("kept", [1, 3])
def test_the_last_ones_are_kept_and_the_best(state: State, kept: int) -> None:
    best = state.folder / "best"
    for epoch in range(1, 6):
        state.save(epoch, kept, *([best] if epoch in {2, 4} else []))
    state.writer.finish()
    assert checkpoint_epochs(state.folder) == [1, 2, 3, 4, 5][-kept:]
    assert checkpoint_epochs(best) == [4]
    assert [state.weight(state.folder, 5), state.weight(best, 4)] == [5.0, 4.0]
    assert not list(state.folder.rglob(".removed-*"))


@pytest.mark.parametrize("point", ["chunk.write", "json.write", "checkpoint.publish"])
def test_an_error_of_the_thread_is_raised_where_training_goes_on(
    state: State, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    state.save(1)
    state.writer.finish()
    monkeypatch.setenv(VARIABLE, f"{point}:ENOSPC")
    forget_plans()
    state.save(2)
    with pytest.raises(OSError, match="No space left on device"):
        state.writer.finish()
    monkeypatch.delenv(VARIABLE)
    forget_plans()
    assert checkpoint_epochs(state.folder) == [1]
    # The same folder takes the next one.
    state.save(3)
    state.writer.finish()
    assert checkpoint_epochs(state.folder) == [1, 3]


def test_what_belongs_to_a_checkpoint_is_written_before_it_has_a_name(tmp_path: Path) -> None:
    """Metrics, without which a checkpoint cannot be continued, and predictions, which it supersedes."""
    state, seen = State(tmp_path), []
    state.writer = CheckpointWriter(
        LoneCommunicator(),
        lambda: seen.append(("written", checkpoint_epochs(tmp_path))),
        lambda: seen.append(("published", checkpoint_epochs(tmp_path))),
    )
    state.save(1)
    state.writer.finish()
    assert seen == [("written", []), ("published", [1])]


def test_a_training_that_ends_abandons_its_checkpoint(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    began, goes_on, write = threading.Event(), threading.Event(), stored.write_arrays

    def slow(*arguments: object) -> object:
        began.set()
        assert goes_on.wait(60)
        return write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint_writer, "write_arrays", slow)
    state.save(1)
    assert began.wait(60)
    closing = threading.Thread(target=state.writer.close)
    closing.start()
    assert state.writer._abandoned.wait(60)
    goes_on.set()
    closing.join()
    assert checkpoint_epochs(state.folder) == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("checkpoint-")]


def test_a_copy_of_rows_of_vertices_does_not_change_as_training_goes_on(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog")
    problem("graph", 60, 240, symmetric=False).store(catalog, 1)
    config = TrainConfig.of(catalog=str(catalog.root), dataset="graph", train_features=True, threads=1)
    session = lone_session(config)
    session.take_inputs()
    model, optimizer = session.model, build_optimizer(session.model, config.model.name, config.optimization)
    copy = Snapshot.take(LoneCommunicator(), 1, model, optimizer)
    rows = {array.name: [(rows, rows.clone()) for _, rows in array.chunks] for array in copy.spread}
    assert set(rows) == {"parameter/feature", "optimizer/feature/first", "optimizer/feature/second"}
    with torch.no_grad():
        for tensor, _ in stored_state(model, optimizer).values():
            tensor.add_(1)
    for name, pairs in rows.items():
        assert all(torch.equal(*pair) for pair in pairs), name
