"""A run records where and how it was made, and hands its metrics to loggers, which can never end it."""

from __future__ import annotations

import logging
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import gnnloom.trainer.loggers
from gnnloom.storage import Catalog
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.storage.errors import InputError, MissingPackageError
from gnnloom.storage.runs.provenance import read_sessions
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig, command_line
from gnnloom.trainer.loggers.logger import LogContext, Logger, MetricsLog
from gnnloom.trainer.loggers.registry import LOGGERS, check_loggers
from gnnloom.trainer.training.loop import train
from gnnloom.workflows.cli.main import cli
from support.lone import LoneCommunicator
from support.plugins import install_plugin
from support.problems import problem

EPOCHS = 4


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("recorded") / "catalog")
    problem("small", 20, 60, symmetric=True).store_grid(catalog, "double", grid=(1, 1))
    return catalog


def config(catalog: Catalog, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {"ranks": 1, "hidden": (4,), "epochs": EPOCHS, "algorithm": "broadcast", "eval_every": 2}
    return TrainConfig.of(catalog=str(catalog.root), dataset="small", threads=1, **{**fixed, **options})


class Memory:
    """Remembers what is logged; fails in an epoch if told to."""

    def __init__(self, fails_in: int = 0) -> None:
        self.fails_in = fails_in
        self.written: dict[int, Mapping[str, float]] = {}
        self.states: list[str] = []

    def open(self, context: LogContext) -> MetricsLog:
        self.context = context
        return self

    def write(self, epoch: int, figures: Mapping[str, float]) -> None:
        if epoch == self.fails_in:
            raise ConnectionError("the server is gone")
        self.written[epoch] = figures

    def close(self, state: str) -> None:
        self.states.append(state)


def add_loggers(monkeypatch: pytest.MonkeyPatch, **memories: Memory) -> None:
    loggers = {name: Logger(name=name, order=0, help="", open=memory.open) for name, memory in memories.items()}
    for module in ("loggers.registry", "training.record"):
        monkeypatch.setattr(f"gnnloom.trainer.{module}.LOGGERS", MappingProxyType(loggers))


def test_a_logger_gets_every_epoch_and_one_that_fails_is_left_out(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = Memory(), Memory(fails_in=2)
    add_loggers(monkeypatch, good=good, bad=bad)
    with caplog.at_level(logging.WARNING):
        result = train(LoneCommunicator(), config(catalog, run="logged", log=("bad", "good")))
    metrics = Run.open(catalog["small"], "logged").metrics()
    assert {epoch: figures["loss"] for epoch, figures in good.written.items()} == {
        line["epoch"] + 1: line["loss"] for line in metrics
    }
    assert [epoch for epoch, figures in good.written.items() if "test_accuracy" in figures] == [2, EPOCHS]
    assert (good.states, good.context.run, good.context.dataset) == (["finished"], "logged", "small")
    assert (list(bad.written), bad.states, result["state"]) == ([1], [], "finished")
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert re.fullmatch("--log bad .*: ConnectionError: the server is gone", warning)


def test_a_run_records_its_sessions(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    add_loggers(monkeypatch, memory=memory)
    chosen = config(catalog, run="twice", log=("memory",))
    train(LoneCommunicator(), chosen, stop=lambda: True)
    train(LoneCommunicator(), chosen)
    sessions = read_sessions(catalog["small"].run_path("twice"))
    assert [session["state"] for session in sessions] == memory.states == ["stopped", "finished"]
    for session in sessions:
        assert session["seconds"] > 0
        assert {"started", "host", "version", "python", "torch"} <= session.keys()
    assert (list(memory.written), memory.context.first_epoch) == ([1, 2, 3, 4], 1)


def test_the_recorded_command_repeats_the_run(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = config(catalog, algorithm="tensor3d", grid=(1, 1, 1), run="a-run", lr=0.5, profile=True)
    parsed: list[TrainConfig] = []

    def launch(given: TrainConfig, *, restart: bool) -> dict[str, Any]:
        assert not restart
        parsed.append(given)
        return {"run": "a-run", "loss": [1.5, 0.5]}

    monkeypatch.setattr("gnnloom.trainer.job.ranks.launch", launch)
    words = shlex.split(command_line(chosen))
    done = CliRunner().invoke(cli, words[1:], catch_exceptions=False)
    assert (done.exit_code, parsed) == (0, [chosen])


def test_logging_does_not_change_the_name_of_a_run(catalog: Catalog) -> None:
    assert config(catalog, log=("wandb",)).run_name == config(catalog).run_name


def test_a_logger_that_cannot_be_used_is_refused_before_the_run_begins(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"log 'tensorbord': .*tensorboard, mlflow, wandb"):
        check_loggers(["tensorbord"])
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setattr("gnnloom.trainer.loggers.registry.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"--log wandb needs wandb: `pip install 'gnnloom\[wandb\]'`"):
        check_loggers(["wandb"])


def test_another_package_adds_a_logger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
from gnnloom.trainer.loggers.logger import Logger
LOGGER = Logger(name="paper", order=9, help="a printer", open=lambda context: None)
"""
    install_plugin(tmp_path, "printpack", source, "gnnloom.loggers", "LOGGER")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = load_descriptors(gnnloom.trainer.loggers, "LOGGER", "gnnloom.loggers", Logger)
    assert list(found) == ["tensorboard", "mlflow", "wandb", "paper"]


class Calls:
    """Stands for another program's objects: remembers the calls of its methods, which all return it."""

    def __init__(self, **attributes: Any) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.__dict__ |= attributes

    def __getattr__(self, name: str) -> Any:
        def method(*arguments: Any, **named: Any) -> Calls:
            self.calls.append((name, arguments, named))
            return self

        return method

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for called, arguments, _ in self.calls if called == name]


class Opened(Calls):
    """Remembers also how it was opened."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.opened: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def open(self, *arguments: Any, **named: Any) -> Opened:
        self.opened.append((arguments, named))
        return self


def write_with(name: str, folder: Path, first_epoch: int = 0) -> None:
    """Log two epochs."""
    log = LOGGERS[name].open(LogContext("web", "first", folder, {"lr": 0.01}, first_epoch))
    for epoch in (first_epoch + 1, first_epoch + 2):
        log.write(epoch, {"loss": 1 / epoch})
    log.close("finished")


def test_tensorboard_gets_scalars_by_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Opened()
    module = ModuleType("torch.utils.tensorboard.writer")
    module.SummaryWriter = writer.open  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", ModuleType("torch.utils.tensorboard"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    write_with("tensorboard", tmp_path, first_epoch=3)
    assert writer.opened == [((str(tmp_path / "tensorboard"),), {"purge_step": 4})]
    assert writer.of("add_scalar") == [("loss", 1 / 4, 4), ("loss", 1 / 5, 5)]
    assert writer.of("close") == [()]


def test_mlflow_gets_metrics_and_continues_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Calls(info=SimpleNamespace(run_id="abc"), experiment_id="7")
    module, entities = ModuleType("mlflow"), ModuleType("mlflow.entities")
    module.MlflowClient = lambda: client  # type: ignore[attr-defined]
    entities.Metric = lambda name, value, time, epoch: (name, value, epoch)  # type: ignore[attr-defined]
    entities.Param = lambda name, value: (name, value)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    write_with("mlflow", tmp_path)
    write_with("mlflow", tmp_path, first_epoch=2)
    assert client.of("create_run") == [("7",)]
    assert client.of("update_run") == [("abc",)]
    batches = [named for called, _, named in client.calls if called == "log_batch"]
    assert batches[0] == {"params": [("lr", "0.01")]}
    assert [metric for batch in batches[1:] for metric in batch["metrics"]] == [
        ("loss", 1 / epoch, epoch) for epoch in (1, 2, 3, 4)
    ]
    assert client.of("set_terminated") == [("abc", "FINISHED")] * 2


def test_wandb_gets_figures_under_an_identifier_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Opened(summary={})
    module = ModuleType("wandb")
    module.init = run.open  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    write_with("wandb", tmp_path)
    write_with("wandb", tmp_path, first_epoch=2)
    first, second = (named for _, named in run.opened)
    assert first["id"] == second["id"]
    assert (first["resume"], second["resume"]) == (None, "allow")
    logged = [(arguments[0]["loss"], named["step"]) for called, arguments, named in run.calls if called == "log"]
    assert logged == [(1 / epoch, epoch) for epoch in (1, 2, 3, 4)]
    assert run.summary == {"state": "finished"}
