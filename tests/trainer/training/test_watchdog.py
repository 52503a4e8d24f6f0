"""No silent standstill: ranks that wait for each other without end say so, and the job ends."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
import torch

from gnnloom.storage import Catalog
from gnnloom.storage.errors import LaunchError
from gnnloom.storage.faults import VARIABLE
from gnnloom.storage.runs.checkpoint import checkpoint_epochs, read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.watchdog import WAITING, StandstillError, Transfer, Watch
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import launch, launch_prediction
from gnnloom.trainer.job.leftovers import remove_segments_since
from support.lone_training import lone_session
from support.mpi import predicting
from support.problems import problem

PROBLEM = problem("graph", 60, 240, symmetric=False)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("watchdog") / "catalog")
    PROBLEM.store(catalog, 2)
    return catalog


def _config(catalog: Catalog, run: str, wait_timeout: float) -> TrainConfig:
    return TrainConfig.of(
        catalog=str(catalog.root), dataset="graph", run=run, ranks=2, hidden=(5,), epochs=12, threads=1,
        checkpoint_every=1, wait_timeout=wait_timeout,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "silent"),
    [
        ("send.halo forward:SIGSTOP:rank=1:nth=7", True),
        ("send.halo forward:drop:rank=1:nth=7", False),
    ],
)
def test_a_standstill_is_reported_and_the_last_checkpoint_is_kept(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, fault: str, silent: bool
) -> None:
    run = "stopped" if silent else "dropped"
    removed: list[Path] = []
    monkeypatch.setattr(
        "gnnloom.trainer.job.launch.remove_segments_since", lambda began: removed.extend(remove_segments_since(began))
    )
    monkeypatch.setenv(VARIABLE, fault)
    with pytest.raises(LaunchError, match=r"waited longer than 8 s for other ranks") as raised:
        launch(_config(catalog, run, 8.0))
    # The ranks were ended, so MPI did not remove what they shared; the launcher did.
    assert removed
    assert not any(path.exists() for path in removed)
    lines = str(raised.value).splitlines()
    assert len(lines) == 4, lines
    assert "receive from 1" in lines[2]
    assert re.search(r"layer [12] forward", lines[2])
    assert ("no report" in lines[3]) == silent
    stored = Run.open(catalog["graph"], run)
    (epoch,) = [int(part.partition(",")[0]) for part in lines[2].split("epoch ")[1:]]
    assert read_checkpoint(stored.checkpoints).epoch == checkpoint_epochs(stored.checkpoints)[-1] == epoch - 1
    assert json.loads((stored.path / WAITING / "00000.json").read_text())["waits_for"].endswith("receive from 1")
    monkeypatch.delenv(VARIABLE)
    assert len(launch(_config(catalog, run, 600.0))["loss"]) == 12
    assert not (stored.path / WAITING).exists()


@pytest.mark.long
def test_a_stopped_rank_ends_a_prediction_as_it_ends_a_training(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(_config(catalog, "predicting", 600.0))
    monkeypatch.setenv(VARIABLE, "send.halo forward:SIGSTOP:rank=1:nth=2")
    started = time.monotonic()
    with pytest.raises(LaunchError, match=r"waited longer than 4 s for other ranks") as raised:
        launch_prediction(predicting(catalog["graph"], "predicting", wait_timeout=4.0))
    # The time of the start, and of looking for what the other ranks report.
    assert time.monotonic() - started < 60
    assert "no report" in str(raised.value).splitlines()[3]
    monkeypatch.delenv(VARIABLE)
    assert launch_prediction(predicting(catalog["graph"], "predicting"))["epoch"] == 12


def test_a_prediction_waits_as_long_as_asked(catalog: Catalog) -> None:
    config = _config(catalog, "asked", 7.0)
    run = Run(catalog["graph"].run_path("asked"))
    run.start(config.to_json(), 0, {})
    assert PredictConfig.of_run(catalog["graph"], run).wait_timeout == 7.0
    assert PredictConfig.of_run(catalog["graph"], run, wait_timeout=0.0).wait_timeout == 0.0


def test_a_wait_that_ends_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / WAITING
    watch = Watch(4.0, folder, rank=3, size=5)
    watch.epoch, watch.step = 2, "layer 1 backward"
    watch.overdue(2.1, [Transfer("send", "halo forward", (1,))])
    assert json.loads((folder / "00003.json").read_text())["place"] == "epoch 2, layer 1 backward"
    watch.moved()
    assert list(folder.iterdir()) == []


def test_a_rank_reports_even_if_nothing_can_be_written() -> None:
    watch = Watch(0.01, None, rank=0, size=70)
    with pytest.raises(StandstillError, match=r"barrier with 1, 2"):
        watch.overdue(1.0, [Transfer("barrier", "", (1, 2))])
    assert Watch().notes_after > time.time()


def test_every_layer_is_announced_forward_and_backward(tmp_path: Path) -> None:
    alone = Catalog(tmp_path / "catalog")
    PROBLEM.store(alone, 1)
    config = TrainConfig.of(catalog=str(alone.root), dataset="graph", run="one", hidden=(5, 4), threads=1)
    session = lone_session(config)
    steps, watch = list[str](), session.comm.traffic.watch
    inputs = session.take_inputs()
    propagate = session.operator.propagate

    def watched(features: torch.Tensor, layer: int, *, as_sums: bool = False) -> torch.Tensor:
        steps.append(watch.step)
        product = propagate(features, layer, as_sums=as_sums)
        if product.requires_grad:
            product.register_hook(lambda _: steps.append(watch.step))  # type: ignore[no-untyped-call]
        return product

    session.operator.propagate = watched  # type: ignore[method-assign]
    session.model.train()
    session.model(inputs).sum().backward()
    # The first layer's product with the features is kept.
    assert steps == ["layer 2 forward", "layer 3 forward", "layer 3 backward", "layer 2 backward"]
