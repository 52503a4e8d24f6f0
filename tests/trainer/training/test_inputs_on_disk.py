"""With `--inputs disk`, batches read their features from disk: the same bits as from memory, and none in memory."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from gnnloom.storage import Catalog
from gnnloom.storage.disk.row_windows import RowWindow, RowWindows
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.feed.feature_view import MappedFeatures
from gnnloom.trainer.modes.epochs.neighbor import NeighborMode
from gnnloom.trainer.passes.memory import Shape
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.rehearsal.projection import project_training
from support.covering import FEW_OR_EVERY
from support.lone import LoneCommunicator
from support.lone_training import lone_session
from support.mpi import train_all
from support.problems import problem
from support.sampled import sampled_config, store_for_sampling

GIVEN = {
    "signed": problem("signed", 60, 240, symmetric=False),
    # Other ranks have no vertex, or no training vertex.
    "crowded": problem("crowded", 40, 160, symmetric=True, crowded=True),
}
FANOUT: dict[str, Any] = {"fanout": (3, 3), "batch_size": 7}


def config(catalog: Catalog, name: str, inputs: str, **options: Any) -> TrainConfig:
    run = "-".join([inputs, *map(str, options.values())]).replace(":", "").lower()
    return sampled_config(catalog, name, "neighbor", run, inputs=inputs, **{**FANOUT, **options})


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"precision": "bf16", "model": "sage"},
    {"model": "gat"},
    {"feature_norm": "row"},
)
CASES = list(itertools.product(GIVEN, range(len(OPTIONS)), (1, 3)))
#: Any two of problem, options and number of ranks.
FEW = [case for case in CASES if (list(GIVEN).index(case[0]) + case[1] + case[2] // 2) % 2 == 0]


@pytest.mark.slow
@pytest.mark.parametrize("every", FEW_OR_EVERY)
def test_losses_have_the_same_bits_as_from_memory(tmp_path: Path, every: bool) -> None:
    catalog = Catalog(tmp_path)
    for given in GIVEN.values():
        store_for_sampling(catalog, given, 1, 3)
    wanted = [
        config(catalog, name, inputs, ranks=ranks, epochs=2, **OPTIONS[number])
        for name, number, ranks in (CASES if every else FEW)
        for inputs in ("memory", "disk")
    ]
    train_all(tmp_path, wanted)
    for from_memory, from_disk in zip(wanted[::2], wanted[1::2], strict=True):
        dataset = catalog[from_memory.data.dataset]
        memory, disk = (Run(dataset.run_path(each.run_name)) for each in (from_memory, from_disk))
        assert [line["loss"] for line in memory.metrics()] == [line["loss"] for line in disk.metrics()]
        assert memory.metrics()[-1]["test_accuracy"] == disk.metrics()[-1]["test_accuracy"]


@pytest.mark.parametrize("cache", [0, 200, 1 << 20])
def test_frequent_rows_in_memory_change_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: int) -> None:
    catalog, kept = Catalog(tmp_path), list[int]()
    store_for_sampling(catalog, GIVEN["signed"], 1)
    losses = [train(LoneCommunicator(), config(catalog, "signed", "memory"))["loss"]]
    monkeypatch.setattr("gnnloom.trainer.feed.feature_view.fit_in_pages", lambda _: False)
    keep = MappedFeatures.keep

    def counted(features: MappedFeatures, vertices: np.ndarray) -> None:
        kept.append(len(vertices))
        keep(features, vertices)

    monkeypatch.setattr(MappedFeatures, "keep", counted)
    losses.append(train(LoneCommunicator(), config(catalog, "signed", "disk", cache_memory=cache))["loss"])
    assert losses[0] == losses[1]
    # Five numbers of 4 bytes each, and the number of the row.
    (count,) = kept
    assert count == cache // 28 if cache < 1000 else 10 < count <= 60


@pytest.mark.parametrize(("threads", "memory"), [(0, 1 << 20), (1, 80), (2, 1 << 20)])
def test_windows_of_batches_change_no_bit_and_read_a_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, memory: int
) -> None:
    catalog, read, windows = Catalog(tmp_path), list[int](), list[np.ndarray]()
    store_for_sampling(catalog, GIVEN["signed"], 1)
    options = {"sampler_threads": threads, "pool": 2, "epochs": 2, "batch_size": 2}
    losses = [train(LoneCommunicator(), config(catalog, "signed", "memory", **options))["loss"]]
    monkeypatch.setattr("gnnloom.trainer.feed.feature_view.fit_in_pages", lambda _: False)
    # The other half of the memory is for windows.
    monkeypatch.setattr("gnnloom.trainer.modes.epochs.neighbor.by_frequency", lambda *_: np.empty(0, np.int64))
    of_window, of_batch = RowWindows.read, MappedFeatures.rows

    def counted(reader: RowWindows, rows: np.ndarray) -> RowWindow:
        windows.append(rows)
        return of_window(reader, rows)

    def seen(features: MappedFeatures, vertices: np.ndarray) -> Tensor:
        read.append(len(vertices) if features.window is None else 0)
        return of_batch(features, vertices)

    monkeypatch.setattr(RowWindows, "read", counted)
    monkeypatch.setattr(MappedFeatures, "rows", seen)
    result = train(LoneCommunicator(), config(catalog, "signed", "disk", cache_memory=memory, **options))
    assert result["loss"] == losses[0]
    assert all((np.diff(rows) > 0).all() for rows in windows)
    # Five numbers of 4 bytes in each row; one of two windows has half of the memory at most.
    assert all(28 * len(rows) <= memory // 2 for rows in windows)
    num_windows = sum(len(rows) > 0 for rows in windows)
    if memory == 80:
        # Windows of one batch read no fewer pages, so frequent rows have all of the memory.
        assert (num_windows, all(read)) == (0, True)
    else:
        assert not any(read)
        # One window for each epoch.
        assert num_windows == 2 < len(read)
    assert result["read_per_used"] >= 0


def test_neither_features_nor_rows_of_the_adjacency_are_in_memory(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    store_for_sampling(catalog, GIVEN["signed"], 1)
    session = lone_session(config(catalog, "signed", "disk"))
    assert session.share.inputs.nbytes == 0
    inputs = session.take_inputs()
    feature = GIVEN["signed"].stored_feature
    assert feature is not None
    assert inputs.value.shape == (0, feature.shape[1])
    assert session.share.inputs.norm == "none"


@pytest.mark.slow
def test_a_run_goes_on_from_the_other_place(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    store_for_sampling(catalog, GIVEN["signed"], 1)
    losses = []
    for begins, ends in (("memory", "memory"), ("memory", "disk"), ("disk", "memory")):
        for inputs, epochs in ((begins, 2), (ends, 4)):
            given = config(catalog, "signed", inputs, epochs=epochs)
            found = train(LoneCommunicator(), TrainConfig.of(**{**given.to_json(), "run": f"{begins}-{ends}"}))
        losses.append(found["loss"])
    assert losses[0] == losses[1] == losses[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "subgraph"}, "inputs: mode subgraph has no such option, only full, neighbor"),
        ({"samples": "abc"}, "inputs 'disk': samples abc does not read"),
        ({"embed": 4}, "inputs 'disk': embed 4 does not read"),
        ({"task": "link"}, "task 'link': inputs disk .*; choose --inputs memory"),
        (
            {"save_embeddings": True},
            "save_embeddings: inputs disk .*; choose --inputs memory, or run `gnnloom predict`",
        ),
    ],
)
def test_what_needs_features_in_memory_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"mode": "neighbor", "fanout": (), **options}
    with pytest.raises(InputError, match=message):
        TrainConfig.of(catalog=str(tmp_path), dataset="g", inputs="disk", **given)


FEW_LABELS = problem("few-labels", 90, 400, symmetric=True)
FEW_LABELS.split[np.random.default_rng(3).random(90) < 0.7] = 0
FEW_LABELS.split[0] = 1


@pytest.mark.parametrize("model", ["sage", "gat"])
@pytest.mark.parametrize("on_disk", [False, True])
def test_scores_of_labeled_vertices_alone_have_the_same_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, on_disk: bool
) -> None:
    catalog = Catalog(tmp_path)
    store_for_sampling(catalog, FEW_LABELS, 1)
    formed = list[int]()
    own = NeighborMode.scores
    if on_disk:
        shape = Shape(width=3, on_disk=True, range_rows=16, memory=1 << 20)
        monkeypatch.setattr("gnnloom.trainer.passes.evaluation.settle", lambda *_: shape)

    def scores(mode: NeighborMode) -> Tensor:
        found = own(mode)
        formed.append(len(found))
        return found

    monkeypatch.setattr(NeighborMode, "scores", scores)
    results = []
    for inputs in ("memory", "disk"):
        given = config(catalog, "few-labels", inputs, model=model, keep_best="val_accuracy")
        results.append(train(LoneCommunicator(), given))
    whole, few = results
    names = ("loss", "train_accuracy", "val_accuracy", "test_accuracy", "per_class", "confusion", "best")
    assert [whole.get(name) for name in names] == [few.get(name) for name in names]
    known = int(((FEW_LABELS.split > 0) & (FEW_LABELS.label >= 0)).sum())
    assert set(formed) == {90, known}
    assert 2 * known < 90


def test_the_plan_counts_the_temporary_files_of_an_evaluation_from_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog(tmp_path)
    store_for_sampling(catalog, FEW_LABELS, 1)
    given = config(catalog, "few-labels", "disk", model="sage")
    assert project_training(given).temporary_bytes == 0, "it fits in memory"
    # Enough for columns of products, and too little for whole matrices.
    planned = project_training(given.with_options(evaluation_memory=(48 << 10) + (2 << 20))).temporary_bytes
    shape = Shape(width=3, on_disk=True, range_rows=16, memory=1 << 20)
    monkeypatch.setattr("gnnloom.trainer.passes.evaluation.settle", lambda *_: shape)
    measured = train(LoneCommunicator(), given)["evaluation"]["disk"]
    # These vertex data do not state their splits, so that the plan counts the three scores of all vertices.
    known = int(((FEW_LABELS.split > 0) & (FEW_LABELS.label >= 0)).sum())
    assert planned - measured == (90 - known) * 3 * 8
    assert not project_training(config(catalog, "few-labels", "memory")).temporary_bytes
