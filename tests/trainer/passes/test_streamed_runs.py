"""Runs that predict and evaluate from disk: the same results, one error for what cannot be, and no file left behind."""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.stage import write_samples
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import BudgetError, CorruptError
from gnnloom.storage.faults import VARIABLE, forget_plans
from gnnloom.storage.meters import PROGRESS, Progress
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.config.continuation import OpenedRun
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.passes import evaluation
from gnnloom.trainer.passes.column_blocks import ColumnBlocks, Storage
from gnnloom.trainer.passes.memory import Shape
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.propagation.column_store import ColumnStore
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from gnnloom.trainer.training.rehearsal.projection import TrainProjection, project_training
from gnnloom.trainer.training.rehearsal.rank_memory import rehearse_prediction
from support.lone import LoneCommunicator
from support.problems import problem
from support.sampled import sampled_config, store_for_sampling
from support.streamed_flips import flip_bit
from support.tolerance import assert_close
from support.warnings_logged import warnings_logged

GIVEN = problem("web", 300, 3000, symmetric=True)
#: Enough for everything that has a size of its own.
MEMORY = 64 << 20


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = Catalog(tmp_path / "catalog")
    store_for_sampling(catalog, GIVEN, 1)
    return catalog


def _trained(catalog: Catalog, **options: Any) -> dict[str, Any]:
    mode, run = options.pop("mode", "full"), options.pop("run", "a")
    # The default, which a mode of the whole graph has not.
    config = sampled_config(catalog, "web", mode, run, **{"batch_size": 1024, **options})
    return train(LoneCommunicator(), config)


def _predicted(catalog: Catalog, memory: int = MEMORY, **options: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    given = {"catalog": str(catalog.root), "dataset": "web", "run": "a", "threads": 1, "evaluation_memory": memory}
    result = predict(LoneCommunicator(), PredictConfig.of(**{**given, **options}))
    predictions = Run.open(catalog["web"], options.get("run", "a")).predictions()
    names = [name for name in ("label", "score", "embedding") if name in predictions]
    return result, {name: predictions.array(name).read() for name in names}


def _on_disk(patch: pytest.MonkeyPatch, width: int = 3) -> None:
    """Let everything be on disk, however small it is."""
    shape = Shape(width, on_disk=True, range_rows=64, memory=MEMORY)
    patch.setattr(evaluation, "settle", lambda *_: shape)
    patch.setattr("gnnloom.trainer.training.predict.fits_whole", lambda *_: False)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gcn", "sage", "gin"])
def test_a_prediction_is_made_in_memory_if_its_forecast_fits(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    shape = Shape(3, on_disk=True, range_rows=64, memory=MEMORY)
    monkeypatch.setattr(evaluation, "settle", lambda *_: shape)
    forecasts = list[int]()

    def noted(opened: OpenedRun, rank: int) -> int | None:
        needed = rehearse_prediction(opened, rank)
        forecasts.append(needed or 0)
        # What Python's own objects take differs by some bytes.
        return forecasts[0]

    monkeypatch.setattr("gnnloom.trainer.training.predict.rehearse_prediction", noted)
    for run, less in (("first", 0), ("fits", 0), ("misses", 1)):
        _trained(catalog, model=model, hidden=(64, 8), epochs=1, run=run)
        memory = forecasts[0] - less if forecasts else MEMORY
        assert ("evaluation" in _predicted(catalog, memory, run=run)[0]) == (less > 0), run
    assert len(forecasts) == 3
    # Features of 5 columns, products and outputs of 64, of which a layer holds two: 300 rows each.
    assert min(forecasts) > 300 * (5 + 2 * 64) * 4


def _left(catalog: Catalog) -> list[str]:
    return [path.name for path in catalog["web"].path.iterdir() if path.is_file() and path.name != "zarr.json"]


@pytest.mark.parametrize("model", ["gcn", "sage", "gin"])
def test_predictions_from_disk_are_those_from_memory(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    _trained(catalog, model=model, hidden=(8, 6), feature_norm="auto")
    result, expected = _predicted(catalog, embeddings=True)
    assert "evaluation" not in result
    Run.open(catalog["web"], "a").drop_predictions()
    with monkeypatch.context() as patch:
        _on_disk(patch)
        result, found = _predicted(catalog, embeddings=True)
    assert expected.keys() == found.keys() == {"label", "score", "embedding"}
    assert np.array_equal(found["label"], expected["label"])
    for name in ("score", "embedding"):
        assert_close(found[name], expected[name], steps=3)
    report = result["evaluation"]
    assert (report["on_disk"], report["columns"]) == (True, 3)
    assert min(report["projected"], report["seconds"], report["disk"]) > 0
    assert not _left(catalog)


def test_attention_is_predicted_in_memory(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    _trained(catalog, model="gat", heads=2)
    _on_disk(monkeypatch)
    result, found = _predicted(catalog)
    assert "evaluation" not in result
    assert len(found["label"]) == 300


def test_what_does_not_fit_memory_is_predicted_from_disk(catalog: Catalog) -> None:
    _trained(catalog)
    # Too little for the graph in memory, and for the buffers of the disk, too.
    with pytest.raises(CollectiveError, match=r"--evaluation-memory"):
        _predicted(catalog, memory=1000)
    assert not _left(catalog)


def test_a_run_on_samples_reports_how_it_was_evaluated(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, PROGRESS.name)
    dataset = catalog["web"]
    options = SampleOptions(fanout=(3, 2), batch_size=40, epochs=1)
    samples = write_samples(dataset, dataset.graph(), None, options, InProcessCluster()).artifact.key
    results, said = {}, dict[str, list[str]]()
    for where in ("memory", "disk"):
        with monkeypatch.context() as patch:
            if where == "disk":
                _on_disk(patch)
            given = {"samples": samples, "run": where, "batch_size": 40, "epochs": 3, "eval_every": 1}
            with warnings_logged() as said[where]:
                results[where] = _trained(catalog, mode="neighbor", **given)
    # Once in a run, before its first evaluation.
    (line,) = said["disk"]
    assert re.fullmatch(r"evaluation from disk: products of 3 columns .* temporary files, about \d+ s", line)
    assert not said["memory"]
    for where, result in results.items():
        assert result["evaluation"]["on_disk"] is (where == "disk")
        assert result["test_accuracy"] == results["memory"]["test_accuracy"]
    assert results["memory"]["evaluation"]["projected"] is None
    assert not _left(catalog)
    # Every evaluation reports its beginning and its end, and many parts if it reads from disk.
    records = [record.args for record in caplog.records if record.name == PROGRESS.name]
    states = [args[0] for args in records if isinstance(args, tuple) and isinstance(args[0], Progress)]
    assert states[0].done == 0 < states[0].tasks < states[-1].tasks == states[-1].done
    assert sum(not state.done for state in states) == sum(state.done == state.tasks for state in states)


@pytest.mark.slow
def test_evaluations_form_no_groups_of_their_own(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = catalog["web"]
    options = SampleOptions(fanout=(3, 2), batch_size=40, epochs=1)
    samples = write_samples(dataset, dataset.graph(), None, options, InProcessCluster()).artifact.key
    formed, form = list[int](), LoneCommunicator.group

    def counted(self: LoneCommunicator, color: int, key: int, size: int | None = None) -> Any:
        formed.append(color)
        return form(self, color, key, size)

    monkeypatch.setattr(LoneCommunicator, "group", counted)
    counts = []
    for epochs in (1, 5):
        formed.clear()
        options_of_run = {"samples": samples, "batch_size": 40, "epochs": epochs, "eval_every": 1}
        _trained(catalog, mode="neighbor", run=f"of-{epochs}", norm="layer", **options_of_run)
        counts.append(len(formed))
    assert counts[0] == counts[1]


def _fault(patch: pytest.MonkeyPatch, plan: str) -> None:
    patch.setenv(VARIABLE, plan)
    forget_plans()


@pytest.mark.parametrize("nth", [1, 4])
def test_a_full_disk_is_one_error(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    _trained(catalog)
    _on_disk(monkeypatch)
    _fault(monkeypatch, f"columns.reserve:ENOSPC:nth={nth}")
    with pytest.raises(BudgetError, match=r"web: no room for [0-9,]+ bytes of temporary files"):
        _predicted(catalog)
    assert not _left(catalog)
    monkeypatch.delenv(VARIABLE)
    forget_plans()
    # The run is as it was.
    assert len(_predicted(catalog)[1]["label"]) == 300


def test_a_disk_without_room_is_an_error_before_anything_runs(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    _trained(catalog)
    _on_disk(monkeypatch)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(CollectiveError, match=r"temporary files, 10 are free"):
        _predicted(catalog)


def test_a_killed_evaluation_leaves_no_file(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    _trained(catalog)
    _on_disk(monkeypatch)
    child = os.fork()
    if not child:
        _fault(monkeypatch, "columns.write:SIGKILL:nth=4")
        _predicted(catalog)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not _left(catalog)
    assert len(_predicted(catalog)[1]["label"]) == 300


def _flip(store: ColumnStore) -> None:
    with store._opened(0) as descriptor:
        flip_bit(descriptor, 5)


@pytest.mark.parametrize("reads", [lambda matrix: matrix.block(0), lambda matrix: matrix.rows(0, 64)])
def test_a_damaged_temporary_file_is_refused(tmp_path: Path, reads: Callable[[ColumnBlocks], torch.Tensor]) -> None:
    matrix = ColumnBlocks((100, 5), torch.float32, Storage(tmp_path, 3, 64), Place())
    values = torch.rand(100, 5)
    for start in (0, 64):
        matrix.put(start, values[start : start + 64])
    assert torch.equal(torch.cat([matrix.rows(0, 64), matrix.rows(64, 100)]), values)
    assert torch.equal(matrix.block(1), values[:, 3:])
    assert matrix._store is not None
    _flip(matrix._store)
    with pytest.raises(CorruptError, match="not the rows that were written"):
        reads(matrix)


def test_a_plan_counts_what_an_evaluation_from_disk_takes(catalog: Catalog) -> None:
    store_for_sampling(catalog, problem("large", 20_000, 40_000, symmetric=True), 1)

    def planned(memory: int) -> TrainProjection:
        options = {"hidden": (64, 64), "batch_size": 4, "fanout": (1, 1, 1), "inputs": "disk"}
        return project_training(
            sampled_config(catalog, "large", "neighbor", "a", **options, evaluation_memory=memory, eval_every=0)
        )

    whole, some, less = (planned(memory) for memory in (2 * MEMORY, 37_500_000, 35_000_000))
    assert whole.temporary_bytes == 0
    assert some.temporary_bytes == less.temporary_bytes > 20_000 * 64 * 4
    # Blocks of 64 columns instead of 32: of an operand in memory. Its product goes to a file part by part.
    assert some.peak_memory[0] - less.peak_memory[0] == pytest.approx(32 * 20_000 * 4, rel=0.2)
    assert some.mapped_bytes == less.mapped_bytes
    assert whole.peak_memory[0] > some.peak_memory[0]
    with pytest.raises(BudgetError, match="--evaluation-memory"):
        planned(1 << 20)
