"""An evaluation from disk takes the memory that it is given, however large the features and the layers are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.models.networks.model import Model
from gnnloom.trainer.passes import evaluation
from gnnloom.trainer.passes.evaluation import streamed_outputs
from gnnloom.trainer.passes.live_bytes import LiveBytes
from gnnloom.trainer.passes.program import RunLayers, run_rows, write_program
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.training.session import open_session
from support.graphs import random_adjacency, store_graph, store_vertices
from support.lone import LoneCommunicator
from support.lone_training import lone_session, opened_run
from support.partitions import store_partition
from support.problems import problem

#: What Python and torch take beside the matrices.
SLACK = 24 << 20


def _anonymous() -> int:
    """Bytes of this process that are not pages of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


@contextmanager
def _watching(found: list[int]) -> Iterator[None]:
    """Add up the most memory inside the block, beyond that at its beginning."""
    before, ended = _anonymous(), threading.Event()

    def watch() -> None:
        most = 0
        while not ended.wait(0.005):
            most = max(most, _anonymous() - before)
        found.append(most)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.long
@pytest.mark.parametrize("model", ["gcn", "sage", "gin"])
def test_memory_is_what_the_evaluation_is_given(tmp_path: Path, model: str) -> None:
    vertices, dim, memory = 1 << 16, 1024, 32 << 20
    catalog = Catalog(tmp_path / "catalog")
    dataset, rng = catalog.create("wide"), np.random.default_rng(0)
    graph = store_graph(dataset, random_adjacency(vertices, 2 * vertices, 0, symmetric=True), symmetric=True)
    feature = rng.random((vertices, dim), np.float32)
    store_vertices(dataset, feature, rng.integers(0, 3, vertices), np.ones(vertices, np.uint8))
    assert feature.nbytes > 5 * memory
    del feature
    shard_rows(dataset, store_partition(dataset, graph, np.zeros(vertices, np.int32), 1), InProcessCluster())
    config = TrainConfig.of(catalog=str(catalog.root), dataset="wide", model=model, hidden=(64,), threads=1, run="any")
    comm, opened = LoneCommunicator(), opened_run(config)
    session = open_session(comm, opened, 1, streams=True)
    source = session.streamed_source("auto", memory)
    grown = list[int]()
    with torch.no_grad(), _watching(grown):
        outputs, report = streamed_outputs(session.model.eval(), source)
    assert report.on_disk
    assert report.columns < 64
    assert grown[0] < memory + SLACK
    assert bool(outputs.scores.isfinite().all())


def _row_bytes(model: Model, num_rows: int) -> tuple[float, int]:
    """Bytes of each row that the largest pass has, and those that are stated."""

    def taken(step: RunLayers) -> int:
        with (live := LiveBytes(num_rows)):
            given = torch.zeros(num_rows, program.dims[step.layer], dtype=place.feature_dtype)
            stored = [program.matrices[number] for number in step.known]
            known = [torch.zeros(num_rows, each.dim, dtype=each.dtype(place)) for each in stored]
            run_rows(model, operator, step, np.arange(num_rows), given, known)
        return live.peak

    place = Place(model.place.feature_dtype, 1)
    with torch.no_grad(), evaluation._in_ranges(model) as operator:
        operator.form_groups()
        program = write_program(model, operator)
        most = max(taken(step) for step in program.steps if isinstance(step, RunLayers))
        return most / num_rows, program.range_row_bytes


@pytest.mark.slow
def test_a_range_of_rows_takes_no_more_than_is_stated(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    problem("web", 60, 240, symmetric=True).store(catalog, 1)
    for model in ("gcn", "sage", "gin"):
        for norm in ("none", "layer", "batch"):
            for precision in ("float32", "bf16"):
                given: dict[str, Any] = {"model": model, "norm": norm, "residual": True, "precision": precision}
                config = TrainConfig.of(catalog=str(catalog.root), dataset="web", hidden=(64, 64), threads=1, **given)
                session = lone_session(config)
                session.take_inputs()
                session.model.eval()
                # Their tensors are in the workspace.
                taken, stated = _row_bytes(session.model, 4000)
                assert stated / 1.2 < taken <= stated, (model, norm, precision)
