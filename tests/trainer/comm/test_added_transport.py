"""Another package adds a transport in one file: the ranks are threads, and train as those of MPI and as one rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.transports.registry import VARIABLE, chosen_transport
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import launch
from gnnloom.trainer.training.loop import train
from support import threads
from support.lone import LoneCommunicator
from support.plugins import install_plugin
from support.problems import problem
from support.tolerance import assert_close

EPOCHS = 2


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("catalog"))
    given = problem("graph", 40, 160, symmetric=False)
    for parts in (1, 2):
        given.store(catalog, parts)
    given.store_grid(catalog, "double", grid=(2, 2))
    return catalog


def config(catalog: Catalog, run: str, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {"hidden": (6,), "epochs": EPOCHS, "precision": "float64", "dropout": 0.3, "threads": 1}
    return TrainConfig.of(catalog=str(catalog.root), dataset="graph", run=run, **{**fixed, **options})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "grid"), [pytest.param("p2p", None, marks=pytest.mark.long), ("tensor3d", (1, 1, 2))]
)
def test_ranks_that_are_threads_train_as_those_of_mpi_and_as_one(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str, grid: tuple[int, ...] | None
) -> None:
    # On a grid, GraphSAGE also sends rows from rank to rank.
    model = {"model": "gcn" if grid is None else "sage"}
    options = {"algorithm": algorithm, "grid": grid, "ranks": 2, **model}
    lone = train(LoneCommunicator(), config(catalog, f"{algorithm}-lone", algorithm=algorithm, **model))["loss"]
    result = launch(config(catalog, f"{algorithm}-mpi", **options))
    sent = {"halo forward"} if grid is None else {"align forward", "propagate forward"}
    assert sent <= result["messages_by_kind"].keys(), result["messages_by_kind"]
    in_mpi = result["loss"]
    source = Path(threads.__file__).read_text()
    environment = install_plugin(tmp_path, "threads", source, "gnnloom.transports", "TRANSPORT")
    monkeypatch.setenv("PYTHONPATH", environment["PYTHONPATH"])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(VARIABLE, "threads")
    monkeypatch.setattr("gnnloom.trainer.job.launch.rank_python", lambda: [*chosen_transport().python])
    in_threads = launch(config(catalog, f"{algorithm}-threads", **options))["loss"]
    # A sum of two numbers has one order.
    assert in_threads == in_mpi
    assert_close(in_threads, lone, steps=EPOCHS * 3)


def test_a_transport_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "pigeons")
    with pytest.raises(InputError, match=r"\$GNNLOOM_TRANSPORT 'pigeons':"):
        chosen_transport()
