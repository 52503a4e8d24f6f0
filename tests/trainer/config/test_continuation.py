"""A run that exists gives its options to the next command, and refuses what would make it another training."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.errors import CorruptError, ExistsError, GnnloomError, InputError
from gnnloom.storage.runs.checkpoint import Checkpoint, write_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.continuation import Start, configure, find_start, run_of, with_its_run
from gnnloom.trainer.config.train_config import TrainConfig

INPUTS = {"graph": "g", "vertices": "v", "shards": "s"}
MADE: dict[str, Any] = {"ranks": 4, "algorithm": "summa", "grid": (2, 2), "hidden": (16,), "lr": 0.5, "epochs": 20}


def start_of(config: TrainConfig, inputs: Mapping[str, str], *, restart: bool = False) -> Start:
    return find_start(run_of(config), config, inputs, restart=restart)


def store(catalog: Catalog, dataset: str, trained: int, *, finished: bool, **options: Any) -> Run:
    """Store a run that was trained for some epochs."""
    config = TrainConfig.of(catalog=str(catalog.root), dataset=dataset, **options)
    run = Run(catalog.create(dataset).run_path(config.run_name))
    run.start(config.to_json(), 0, INPUTS)
    write_checkpoint(run.checkpoints, Checkpoint(trained, {"weight": np.eye(2)}, {}))
    if finished:
        run.finish({"epochs": trained})
    return run


@pytest.fixture
def first(catalog: Catalog) -> Run:
    return store(catalog, "web", 20, finished=True, run="first", **MADE)


def given(catalog: Catalog, **options: Any) -> dict[str, Any]:
    return {"catalog": str(catalog.root), "dataset": "web", **options}


def start(catalog: Catalog, **options: Any) -> Start:
    return start_of(configure(given(catalog, run="first", **options)), INPUTS)


def test_options_that_are_not_given_come_from_the_run(catalog: Catalog, first: Run) -> None:
    stored = TrainConfig.of_run(first)
    assert configure(given(catalog, run="first")) == stored
    more = configure(given(catalog, run="first", epochs=30, lr=0.5, normalization="auto", hidden=[16]))
    assert (more.optimization.epochs, more.optimization.lr, more.algorithm.grid) == (30, 0.5, (2, 2))
    other = configure(given(catalog, run="other"))
    assert (other.optimization.lr, other.algorithm.ranks) == (0.01, 1)


def test_options_that_depend_on_a_changed_one_are_not_taken_over(catalog: Catalog, first: Run) -> None:
    assert configure(given(catalog, run="first", ranks=6)).algorithm.grid is None
    assert configure(given(catalog, run="first", algorithm="p2p", ranks=2)).algorithm.grid is None
    sage = configure(given(catalog, run="first", model="sage"), restart=True)
    assert (sage.model.normalization, sage.optimization.lr) == ("mean", 0.5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lr": 0.1}, "lr 0.5 (now 0.1)"),
        ({"hidden": (8, 8)}, "hidden [16] (now [8, 8])"),
        ({"model": "sage"}, "model 'gcn' (now 'sage')"),
        ({"normalization": "mean"}, "normalization 'symmetric' (now 'mean')"),
    ],
)
def test_what_decides_the_result_must_not_change(
    catalog: Catalog, first: Run, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ExistsError, match="--restart") as error:
        configure(given(catalog, run="first", **options))
    assert f"was made with {said};" in str(error.value)
    assert str(first.path) in str(error.value)
    assert configure(given(catalog, run="first", **options), restart=True).run_name == "first"


def test_wrong_values_are_named_also_if_the_run_exists(catalog: Catalog, first: Run) -> None:
    assert first.exists
    for options, said in (({"lr": "fast"}, "lr"), ({"epochs": 0}, "epochs 0"), ({"color": "red"}, "color")):
        with pytest.raises(InputError, match=said):
            configure(given(catalog, run="first", **options))


def test_a_training_begins_where_the_run_ended(catalog: Catalog, first: Run) -> None:
    assert start(catalog) == Start(20, is_finished=True)
    assert start(catalog, epochs=30) == Start(20)
    assert start(catalog, save_embeddings=True) == Start(20)
    config = TrainConfig.of_run(first)
    assert start_of(config, INPUTS, restart=True) == Start()
    (first.path / "result.json").unlink()
    assert start(catalog) == Start(20)
    shutil.rmtree(first.checkpoints)
    assert start(catalog) == Start()


def test_fewer_epochs_than_the_run_has_are_refused(catalog: Catalog, first: Run) -> None:
    with pytest.raises(InputError, match=r"20 epochs .*epochs 5;"):
        start(catalog, epochs=5)
    assert first.is_finished


def test_other_data_are_refused_and_a_lost_checkpoint_is_named(catalog: Catalog, first: Run) -> None:
    for kind, said in (("graph", "another graph"), ("vertices", "other vertex data")):
        with pytest.raises(InputError, match=rf"{said}.*--restart"):
            start_of(TrainConfig.of_run(first), {**INPUTS, kind: "other"})
    shutil.rmtree(first.checkpoints)
    assert start(catalog).is_finished
    with pytest.raises(CorruptError, match="the checkpoints of this run of 20 epochs are missing"):
        start(catalog, epochs=30)


def test_a_run_is_found_under_another_name_of_its_dataset(catalog: Catalog) -> None:
    derived = store(catalog, "web", 3, finished=False, **MADE)
    shutil.copytree(catalog["web"].path, catalog.root / "copy")
    fields = {**given(catalog, **MADE), "dataset": "copy"}
    config = configure(fields)
    assert (config.data.dataset, config.run_name) == ("copy", derived.name)
    assert start_of(config, INPUTS) == Start(3)
    complete = TrainConfig.of(**fields)
    assert complete.run_name != derived.name
    assert with_its_run(complete).run_name == derived.name
    assert with_its_run(TrainConfig.of(**{**fields, "lr": 0.1})).run.name is None


def test_a_moved_catalog_continues(catalog: Catalog, first: Run, tmp_path: Path) -> None:
    assert first.exists
    moved = Catalog(catalog.root.rename(tmp_path / "moved"))
    config = configure({**given(moved), "run": "first", "epochs": 30})
    assert (config.data.catalog, start_of(config, INPUTS)) == (str(moved.root), Start(20))


def test_a_dataset_that_does_not_exist_is_an_error_of_the_next_step(tmp_path: Path) -> None:
    config = configure({"catalog": str(tmp_path), "dataset": "absent", "run": "first"})
    with pytest.raises(GnnloomError, match="no such dataset"):
        start_of(config, INPUTS)
