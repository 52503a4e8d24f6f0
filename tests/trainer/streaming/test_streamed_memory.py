"""An evaluation from disk takes the memory that it is given, however large the features and the layers are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.streaming.evaluation import streamed_outputs
from gnnloom.trainer.training.session import open_session
from support.graphs import random_adjacency, store_graph, store_vertices
from support.lone import LoneCommunicator
from support.lone_training import opened_run
from support.partitions import store_partition

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
    vertices, dim, memory = 1 << 16, 1024, 48 << 20
    catalog = Catalog(tmp_path / "catalog")
    dataset, rng = catalog.create("wide"), np.random.default_rng(0)
    graph = store_graph(dataset, random_adjacency(vertices, 2 * vertices, 0, symmetric=True), symmetric=True)
    feature = rng.random((vertices, dim), np.float32)
    store_vertices(dataset, feature, rng.integers(0, 3, vertices), np.ones(vertices, np.uint8))
    assert feature.nbytes > 5 * memory
    del feature
    shard_rows(dataset, store_partition(dataset, graph, np.zeros(vertices, np.int32), 1), InProcessCluster())
    config = TrainConfig(catalog=str(catalog.root), dataset="wide", model=model, hidden=(64,), threads=1, run="any")
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
