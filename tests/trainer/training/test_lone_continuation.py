"""What a training keeps and drops when it continues, finishes again or starts over; on one rank, in this process."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.runs.checkpoint import checkpoint_epochs
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.config.continuation import configure
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training import loop
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from gnnloom.trainer.training.state.checkpoint_writer import CheckpointWriter
from support.lone import LoneCommunicator
from support.problems import problem


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = Catalog(tmp_path / "catalog")
    problem("web", 30, 90, symmetric=True).store(catalog, 1)
    return catalog


def config(catalog: Catalog, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {"dataset": "web", "hidden": (4,), "epochs": 3, "threads": 1}
    return TrainConfig.of(catalog=str(catalog.root), **{**fixed, **options})


def run_of(catalog: Catalog, config: TrainConfig) -> Run:
    return Run.open(catalog[config.data.dataset], config.run_name)


def flip(path: Path) -> None:
    """Change the last byte of a file."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def times(run: Run) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}


def test_the_same_command_again_changes_nothing_and_restart_starts_over(catalog: Catalog) -> None:
    first = config(catalog)
    result = train(LoneCommunicator(), first)
    run = run_of(catalog, first)
    before = times(run)
    assert train(LoneCommunicator(), first.with_options(eval_every=1)) == result
    assert times(run) == before
    again = train(LoneCommunicator(), first, restart=True)
    assert again["loss"] == result["loss"]
    assert times(run)[run.metrics_path] > before[run.metrics_path]
    with pytest.raises(CollectiveError, match="trained for 3 epochs already"):
        train(LoneCommunicator(), first.with_options(epochs=2))
    other = train(LoneCommunicator(), first.with_options(run=run.name, lr=0.5, epochs=2), restart=True)
    assert len(other["loss"]) == len(run.metrics()) == 2
    assert TrainConfig.of_run(run).optimization.lr == 0.5


def test_without_the_last_evaluation_the_losses_are_the_same_and_a_longer_training_measures(catalog: Catalog) -> None:
    full = train(LoneCommunicator(), config(catalog, run="full", eval_every=0))
    assert full["test_accuracy"] is not None
    fast = train(LoneCommunicator(), config(catalog, run="fast", eval_every=0, final_eval=False))
    assert fast["loss"] == full["loss"]
    assert fast["test_accuracy"] is None
    assert "per_class" not in fast
    assert not [line for line in run_of(catalog, config(catalog, run="fast")).metrics() if "test_accuracy" in line]
    longer = {name: config(catalog, run=name, eval_every=0, epochs=4) for name in ("full", "fast")}
    results = [train(LoneCommunicator(), each) for each in longer.values()]
    assert results[0]["test_accuracy"] == results[1]["test_accuracy"] is not None
    # Evaluations that are due are not left out.
    due = train(LoneCommunicator(), config(catalog, run="due", eval_every=1, final_eval=False))
    assert due["test_accuracy"] == full["test_accuracy"]


def test_a_stopped_training_continues_and_equals_one_that_never_stopped(catalog: Catalog) -> None:
    straight = train(LoneCommunicator(), config(catalog, epochs=5, run="straight"))
    stopped = train(LoneCommunicator(), config(catalog, epochs=5), lambda: True)
    assert (stopped["state"], stopped["epochs"]) == ("stopped", 1)
    assert train(LoneCommunicator(), config(catalog, epochs=5))["loss"] == straight["loss"]


def test_checkpoints_are_written_as_time_passes(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = config(catalog, run="timed", epochs=4)
    train(LoneCommunicator(), timed)
    assert checkpoint_epochs(run_of(catalog, timed).checkpoints) == [4]
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    train(LoneCommunicator(), timed, restart=True)
    assert checkpoint_epochs(run_of(catalog, timed).checkpoints) == [3, 4]
    counted = config(catalog, run="counted", epochs=5, checkpoint_every=2)
    train(LoneCommunicator(), counted)
    assert checkpoint_epochs(run_of(catalog, counted).checkpoints) == [4, 5]


def test_predictions_stay_until_the_next_checkpoint(catalog: Catalog) -> None:
    first = config(catalog, run="first", save_embeddings=True)
    train(LoneCommunicator(), first)
    run = run_of(catalog, first)
    asked = PredictConfig.of_run(catalog["web"], run)
    summary = predict(LoneCommunicator(), asked)
    assert (summary["reused"], summary["embeddings"], summary["ranks"]) == (True, True, 0)
    assert summary["path"] == str(run.predictions().path)
    # Damaged predictions are made again, with the embeddings that were there.
    for damaged in ("score/c/0/0", "predictions.json"):
        flip(run.predictions_path / damaged)
        summary = predict(LoneCommunicator(), asked)
        assert (summary["reused"], summary["embeddings"], summary["ranks"]) == (False, True, 1)
        run.predictions().verify()

    def stop_at_once() -> bool:
        assert run.has_predictions_of(3, "embedding")
        return True

    train(LoneCommunicator(), first.with_options(epochs=6), stop_at_once)
    assert not run.predictions_path.exists()
    assert checkpoint_epochs(run.checkpoints) == [3, 4]


class Killed(BaseException):
    """Ends a training as a kill does: nothing after it runs."""


def kill(*_: object, **__: object) -> None:
    raise Killed


def test_a_kill_around_a_checkpoint_leaves_predictions_that_belong_to_one(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = config(catalog, run="first", save_embeddings=True)
    train(LoneCommunicator(), first)
    run, longer = run_of(catalog, first), first.with_options(epochs=6, checkpoint_every=1)
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointWriter, "save", kill)
        with pytest.raises(Killed):
            train(LoneCommunicator(), longer)
    # The checkpoint of epoch 4 was not written, so its predecessor still predicts.
    assert checkpoint_epochs(run.checkpoints) == [3]
    assert run.has_predictions_of(3, "embedding")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "drop_predictions", kill)
        with pytest.raises(Killed):
            train(LoneCommunicator(), longer)
    assert checkpoint_epochs(run.checkpoints) == [3, 4]
    assert run.has_predictions_of(3)

    def stop_at_once() -> bool:
        assert not run.predictions_path.exists()
        return True

    # The next training drops what the killed one did not.
    train(LoneCommunicator(), longer, stop_at_once)
    train(LoneCommunicator(), longer)
    assert run.has_predictions_of(6, "embedding")


def test_the_best_checkpoint_keeps_its_predictions_and_is_the_one_that_is_scored(catalog: Catalog) -> None:
    # Steps that are far too long: no epoch is better than the first one.
    options: dict[str, Any] = {"lr": 50.0, "eval_every": 1}
    best = config(catalog, run="best", keep_best="loss", save_embeddings=True, **options)
    kept = train(LoneCommunicator(), best)
    run = run_of(catalog, best)
    assert kept["best"]["epoch"] == kept["class_epoch"] == 1
    stopped = train(LoneCommunicator(), best.with_options(epochs=6), lambda: True)
    assert stopped["state"] == "stopped"
    assert checkpoint_epochs(run.checkpoints) == [3, 4]
    assert run.has_predictions_of(1, "embedding")
    longer = train(LoneCommunicator(), best.with_options(epochs=6))
    short = train(LoneCommunicator(), config(catalog, run="short", **{**options, "epochs": 1}))
    for result in (longer, short):
        assert [result[name] for name in ("class_epoch", "confusion", "per_class")] == [
            1,
            kept["confusion"],
            kept["per_class"],
        ]
    # Without a best checkpoint, the last one counts.
    assert train(LoneCommunicator(), config(catalog, run="last", **options))["class_epoch"] == 3


def test_a_dataset_that_was_imported_under_another_name_continues_its_runs(catalog: Catalog) -> None:
    first = config(catalog)
    train(LoneCommunicator(), first)
    dataset = catalog["web"].path.rename(catalog.root / "copy")
    shutil.rmtree(dataset / ".locks", ignore_errors=True)
    # Twice, since the first continuation writes the configuration anew.
    for epochs in (4, 5):
        given = {"catalog": str(catalog.root), "dataset": "copy", "hidden": (4,), "threads": 1, "epochs": epochs}
        result = train(LoneCommunicator(), configure(given))
        assert (result["run"], result["epochs"]) == (first.run_name, epochs)
    assert catalog["copy"].runs() == [first.run_name]
    run = Run.open(catalog["copy"], first.run_name)
    assert predict(LoneCommunicator(), PredictConfig.of_run(catalog["copy"], run))["epoch"] == 5


def test_a_training_does_not_continue_without_the_metrics_before_its_checkpoint(catalog: Catalog) -> None:
    stopped = config(catalog, run="stopped", epochs=5, checkpoint_every=1)
    train(LoneCommunicator(), stopped.with_options(epochs=3))
    train(LoneCommunicator(), stopped, lambda: True)
    run = run_of(catalog, stopped)
    whole = run.metrics_path.read_bytes()
    lines = whole.splitlines(keepends=True)
    assert (len(lines), checkpoint_epochs(run.checkpoints)[-1]) == (4, 4)
    run.metrics_path.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(CollectiveError, match="3 of the 4 epochs"):
        train(LoneCommunicator(), stopped)
    run.metrics_path.write_bytes(whole)
    assert len(train(LoneCommunicator(), stopped)["loss"]) == 5


def test_a_damaged_checkpoint_is_named_with_what_to_do(catalog: Catalog) -> None:
    damaged = config(catalog, run="damaged", checkpoint_every=2)
    train(LoneCommunicator(), damaged)
    run = run_of(catalog, damaged)
    flip(next(path for path in (run.checkpoints / "00000003").rglob("c/*") if path.is_file()))
    more = damaged.with_options(epochs=5)
    with pytest.raises(CollectiveError, match=r"damaged chunk .*00000003"):
        train(LoneCommunicator(), more)
    shutil.rmtree(run.checkpoints / "00000003")
    assert len(train(LoneCommunicator(), more)["loss"]) == 5
