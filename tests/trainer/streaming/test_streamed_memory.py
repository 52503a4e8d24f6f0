"""An evaluation from disk takes the memory that it is given, however large the features and the layers are."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.kernels.unperformed import tensors_in
from gnnloom.trainer.models.networks.model import Model
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.streaming import evaluation
from gnnloom.trainer.streaming.evaluation import streamed_outputs
from gnnloom.trainer.streaming.memory import range_row_bytes
from gnnloom.trainer.streaming.program import Pass, write_program
from gnnloom.trainer.streaming.streamed_layers import StreamedLayers
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


class _Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the tensors that the operations inside the block make, while they live."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._live = dict[int, int]()
        self.peak = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # See support/allocations.py.
        return False

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tensors_in((result,)):
            storage = tensor.untyped_storage()
            if storage._cdata not in self._live:
                self._live[storage._cdata] = storage.nbytes()
                weakref.finalize(storage, self._live.pop, storage._cdata, None)
        self.peak = max(self.peak, sum(self._live.values()))
        return result


def _pass_bytes(model: Model, num_rows: int) -> tuple[int, int]:
    """Bytes that the largest pass over so many rows has, and those that are stated."""
    place, most = Place(model.place.feature_dtype, 1), 0
    with torch.no_grad(), evaluation._in_ranges(model) as operator:
        operator.form_groups()
        program = write_program(model, operator)
        product: Any = SimpleNamespace(layout=SimpleNamespace(vertex=np.arange(num_rows)), place=place)
        layers = StreamedLayers(model, operator, product, SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]
        for step in program.steps:
            if not isinstance(step, Pass):
                continue
            given = torch.zeros(num_rows, program.dims[step.layer], dtype=place.feature_dtype)
            stored = [program.matrices[number] for number in step.known]
            known = [torch.zeros(num_rows, each.dim, dtype=each.dtype(place)) for each in stored]
            with _Live() as live:
                layers.run_range(step, 0, given, known)
            most = max(most, given.nbytes + sum(each.nbytes for each in known) + live.peak)
        return most, num_rows * range_row_bytes(program, place)


def test_a_range_of_rows_takes_no_more_than_is_stated(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    problem("web", 60, 240, symmetric=True).store(catalog, 1)
    for model in ("gcn", "sage", "gin"):
        for norm in ("none", "layer", "batch"):
            for precision in ("float32", "bf16"):
                given: dict[str, Any] = {"model": model, "norm": norm, "residual": True, "precision": precision}
                config = TrainConfig(catalog=str(catalog.root), dataset="web", hidden=(64, 64), threads=1, **given)
                session = lone_session(config)
                session.take_inputs()
                session.model.eval()
                taken, stated = _pass_bytes(session.model, 4000)
                # In bf16, most matrices have half of the bytes that are stated.
                assert stated / (2 if precision == "float32" else 4) < taken <= stated, (model, norm, precision)
