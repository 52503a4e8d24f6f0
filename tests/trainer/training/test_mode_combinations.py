"""Modes that sample, with bf16, with the adjacency on disk, and with rows in another order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.stored_csr import StoredCSR
from gnnloom.storage.errors import InputError
from gnnloom.trainer.operators.p2p import PointToPoint
from gnnloom.trainer.training.loop import train
from support.lone import LoneCommunicator
from support.lone_training import lone_session
from support.problems import problem
from support.sampled import sampled_config, store_whole

#: Options of each mode besides the batch size.
MODES: dict[str, dict[str, Any]] = {
    "subgraph": {"sampler": "edge"},
    "minibatch": {},
    "neighbor": {"fanout": (4, 4)},
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("modes") / "catalog")
    store_whole(catalog, problem("web", 60, 240, symmetric=True), 1)
    return catalog


def losses(catalog: Catalog, mode: str, **options: Any) -> list[float]:
    # Runs are told apart by everything that the options say.
    name = "-".join([mode, *(f"{key}-{value}" for key, value in options.items())])
    config = sampled_config(catalog, "web", mode, name, **{"precision": "float32", **MODES[mode], **options})
    found: list[float] = train(LoneCommunicator(), config)["loss"]
    return found


@pytest.mark.parametrize("mode", MODES)
def test_bf16_trains_in_every_mode_as_float32_does(catalog: Catalog, mode: str) -> None:
    single, half = losses(catalog, mode, epochs=10), losses(catalog, mode, epochs=10, precision="bf16")
    np.testing.assert_allclose(half, single, rtol=0.01)
    # Equal losses would mean that batches are multiplied in float32.
    assert half != single


def test_a_mode_with_a_graph_of_its_own_evaluates_from_disk(catalog: Catalog) -> None:
    assert losses(catalog, "subgraph", adjacency="disk", eval_every=1) == losses(catalog, "subgraph", eval_every=1)


@pytest.mark.parametrize("mode", ["neighbor", "subgraph"])
def test_sampled_neighbors_leave_the_rows_of_the_shard_on_disk(catalog: Catalog, mode: str) -> None:
    config = sampled_config(catalog, "web", mode, "opened", **MODES[mode])
    operator = lone_session(config).operator
    assert isinstance(operator, PointToPoint)
    assert isinstance(operator.matrix.own, StoredCSR) == (mode == "neighbor")


def test_a_mode_that_restricts_rows_needs_them_in_memory(catalog: Catalog) -> None:
    with pytest.raises(InputError, match="adjacency 'disk': mode minibatch "):
        losses(catalog, "minibatch", adjacency="disk")
