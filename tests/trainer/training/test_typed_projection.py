"""The memory that a run on a graph with types takes is known before it runs, and near the measured one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gnnloom
from gnnloom.storage import Dataset
from gnnloom.storage.errors import BudgetError
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.job.launch import launch
from gnnloom.trainer.planner.fitting import settle_memory
from gnnloom.trainer.training import start
from gnnloom.trainer.training.rehearsal.projection import TrainProjection, opened_run, project_training
from support.lone import LoneCommunicator
from support.mpi import MPI_PYTHON, TESTS
from support.projections import parts_of
from support.typed_papers import COUNTS, store, tables
from support.typed_runs import typed_config, with_topics


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    found: Dataset = with_topics(store(tmp_path_factory.mktemp("typed") / "catalog", "papers", tables()))
    gnnloom.draw_links(found, relation="writes", valid=0.1, test=0.1, workers=0)
    return found


def project(dataset: Dataset, **options: Any) -> TrainProjection:
    """Project a run with a module in torch alone."""
    return project_training(typed_config(dataset, "plan", "Averages", **options))


def test_what_a_run_needs_is_known_without_reading_the_graph(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("mapped")

    for module in ("artifacts.mapped_vertices", "artifacts.typed.mapped_graph", "artifacts.mapped_links"):
        monkeypatch.setattr(f"gnnloom.storage.{module}.open_copy", refuse)
    for options in ({}, {"relation": "writes"}, {"relation": "writes", "negative_sampler": "degree"}, {"ranks": 2}):
        found = project(dataset, **options)
        assert len(found.peak_memory) == options.get("ranks", 1)
        assert max(found.peak_memory) == found.process_memory + sum(parts_of(found))
        # All rows of features are mapped.
        assert found.mapped_bytes > 4 * (3 * COUNTS["author"] + 5 * COUNTS["paper"])


def test_reverses_need_not_be_stored_before_a_forecast(tmp_path: Path) -> None:
    # The loader imports it too, and would turn the warnings of its modules into errors.
    pytest.importorskip("torch_geometric.nn")
    bare = with_topics(store(tmp_path / "catalog", "papers", tables()))
    options: dict[str, Any] = {"reverse": True, "batch_size": 8, "fanout": (2, 2)}
    before = project(bare, **options)
    assert not list(bare.path.glob("transpose/*"))
    given = {**typed_config(bare, "plan", "Averages", **options).to_json(), "catalog": str(bare.path.parent)}
    assert settle_memory(given, 2 * max(before.peak_memory))["reverse"]
    next(iter(gnnloom.loader(bare, of_type="paper", reverse=True, fanout=1)))
    after = project(bare, **options)
    # Rows of even lengths are near rows of random graphs.
    assert max(before.peak_memory) == pytest.approx(max(after.peak_memory), rel=0.05)
    assert before.mapped_bytes == pytest.approx(after.mapped_bytes, rel=0.05)


def test_wider_layers_and_larger_batches_need_more(dataset: Dataset) -> None:
    few: dict[str, Any] = {"batch_size": 2, "fanout": (2, 2)}
    usual = project(dataset, **few)
    assert project(dataset, **{**few, "fanout": (8, 8)}).batch_memory > usual.batch_memory
    assert project(dataset, **{**few, "pool": 9}).batch_memory > usual.batch_memory
    assert max(project(dataset, **few, hidden=(4096,)).peak_memory) > max(usual.peak_memory)
    assert project(dataset, **few, hidden=(4096,)).written_bytes > usual.written_bytes


def test_a_run_that_cannot_fit_is_refused_before_it_runs(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = opened_run(typed_config(dataset, "refused", "Averages"))
    needed = start.check_fits(LoneCommunicator(), opened)
    assert needed
    monkeypatch.setattr(start, "available_memory", lambda: needed // 2)
    with pytest.raises(CollectiveError, match="run refused"):
        start.check_fits(LoneCommunicator(), opened)


def test_runs_from_stored_samples_are_forecast_from_the_sizes_of_batches(dataset: Any) -> None:
    options: dict[str, Any] = {"fanout": (2, 2), "batch_size": 8}
    for ranks in (1, 2):
        samples = gnnloom.sample(dataset, of_type="paper", ranks=ranks, epochs=1, workers=0, **options)
        config = typed_config(dataset, "stored", "Averages", samples=samples.artifact.key, ranks=ranks, **options)
        found = project_training(config)
        assert len(found.peak_memory) == ranks
        assert ranks > 1 or start.check_fits(LoneCommunicator(), opened_run(config))
        assert settle_memory({**config.to_json(), "catalog": str(dataset.path.parent)}, 2 * max(found.peak_memory))
    # Without an evaluation, nothing is mapped.
    assert not project_training(config.with_options(final_eval=False)).mapped_bytes


def test_a_run_is_fitted_to_a_memory_or_refused_with_what_it_takes(dataset: Dataset) -> None:
    config = typed_config(dataset, "fitted", "Averages")
    given = {**config.to_json(), "catalog": str(dataset.path.parent)}
    least = max(project_training(config).peak_memory)
    assert settle_memory(given, 2 * least)["of_type"] == "paper"
    with pytest.raises(BudgetError, match="a rank takes"):
        settle_memory(given, least // 2)


#: Graphs: how much more often some vertices are ends of edges than others.
SKEWS = {"even": 1.0, "skewed": 2.5}


@pytest.fixture(scope="module", params=SKEWS)
def middle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    # The loader imports it too, and would turn the warnings of its modules into errors.
    pytest.importorskip("torch_geometric.nn")
    rng, counts = np.random.default_rng(1), {"author": 24_000, "paper": 36_000, "venue": 50}

    def ends(of_type: str, count: int) -> Any:
        return (counts[of_type] * rng.random(count) ** SKEWS[request.param]).astype(np.int64)

    relations = {
        (source, name, target): pd.DataFrame({"from": ends(source, count), "to": ends(target, count)})
        for source, name, target, count in (
            ("author", "writes", "paper", 150_000),
            ("paper", "cites", "paper", 220_000),
            ("author", "likes", "paper", 9000),
            ("paper", "in", "venue", 36_000),
        )
    }
    vertices: dict[str, Any] = {
        name: pd.DataFrame(rng.standard_normal((counts[name], width), np.float32)).add_prefix("x")
        for name, width in (("author", 32), ("paper", 64), ("venue", 8))
    }
    vertices["paper"]["y"] = rng.integers(0, 20, counts["paper"])
    vertices["paper"]["split"] = rng.choice(
        ["train", "valid", "test", "none"], counts["paper"], p=[0.05, 0.03, 0.02, 0.9]
    )
    columns = {"y": "y as label", "split": "split as split"}
    given = {
        name: (table.assign(id=np.arange(len(table))), ["id", *(columns.get(c, f"{c} as feature") for c in table)])
        for name, table in vertices.items()
    }
    found: Any = gnnloom.ingest(
        request.param, relations=relations, vertices=given, merge="keep", workers=0,
        catalog=tmp_path_factory.mktemp(request.param) / "catalog",
    )  # fmt: skip
    next(iter(gnnloom.loader(found, fanout=1, of_type="paper", reverse=True)))
    gnnloom.draw_links(found, relation="likes", valid=0.05, test=0.05, workers=0)
    return found  # type: ignore[no-any-return]


RUNS: dict[str, dict[str, Any]] = {
    "small": {"batch_size": 64, "fanout": (4, 4)},
    "middle": {"batch_size": 1024},
    "reverses": {"batch_size": 4096, "reverse": True, "hidden": (128,), "final_eval": False},
    "total": {"batch_size": 4096, "fanout": (20, 10), "reverse": True, "fanout_total": True},
    "two": {"batch_size": 512, "reverse": True, "ranks": 2},
    "links": {"relation": "likes", "output_dim": 32, "link_batch": 2048},
    "negatives": {"relation": "likes", "output_dim": 32, "link_batch": 4096, "negatives": 3, "final_eval": False},
    "sage": {"name": "Sage", "batch_size": 4096, "reverse": True},
    "attention": {"name": "Attention", "batch_size": 2048, "reverse": True},
    "transformer": {"name": "Transformer", "batch_size": 2048, "reverse": True},
    "packed": {"batch_size": 1024, "packed": True},
    "packed-only": {"batch_size": 512, "reverse": True, "packed": True, "final_eval": False, "ranks": 2},
    "packed-sage": {"name": "Sage", "batch_size": 4096, "reverse": True, "packed": True, "final_eval": False},
}


@pytest.mark.long
@pytest.mark.parametrize("case", RUNS)
def test_memory_is_near_the_measured_one(middle: Dataset, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a forked rank shares with the process that it comes from is not measured as its own.
    monkeypatch.setattr("gnnloom.trainer.job.launch.rank_python", lambda: [*MPI_PYTHON])
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    options: dict[str, Any] = {"name": "Averages", "fanout": (10, 10), "hidden": (64,), "epochs": 1, **RUNS[case]}
    if options["name"] != "Averages":
        # A plan assumes that ranks load PyG if this process has.
        pytest.importorskip("torch_geometric.nn")
    else:
        monkeypatch.delitem(sys.modules, "torch_geometric", raising=False)
    if options.pop("packed", False):
        drawn = {name: options[name] for name in ("batch_size", "fanout", "reverse") if name in options}
        samples = gnnloom.sample(middle, of_type="paper", epochs=2, ranks=options.get("ranks", 1), workers=0, **drawn)
        options["samples"] = samples.artifact.key
    config = typed_config(middle, f"run-{case}", **{"precision": "float32", **options})
    planned = project_training(config)
    for expected, found in zip(planned.peak_memory, launch(config)["peak_memory"], strict=True):
        # Measured memory includes the mapped pages that were touched, which the system would take back.
        assert found - planned.mapped_bytes <= expected <= 1.16 * found, f"{case}: {expected / found:.3f}"
