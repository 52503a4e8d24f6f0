"""A model of the user's own, in one file, reads a column of edges: it trains, loads, is evaluated and forecast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gnnloom
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.rehearsal.projection import project_training
from support.lone import LoneCommunicator
from support.problems import problem
from support.sampled import sampled_config, store_for_sampling
from support.tolerance import assert_close
from support.typed_papers import COUNTS, WRITES, store, tables
from support.typed_runs import with_topics

#: The file that a user writes: a paper is the sum of its authors, by a column of the edges, and a vertex of the other
#: graph the sum of its neighbors by their weights.
OWN = """
import torch
from torch import nn


def gathered(rows, edge_index, column, count):
    return torch.zeros(count, rows.shape[1], dtype=rows.dtype).index_add(
        0, edge_index[1], rows[edge_index[0]] * column[:, None])


class ByShare(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.linear = nn.Linear(in_channels["author"], out_channels)

    def forward(self, x_dict, edge_index_dict, edge_attr_dict):
        edges = "author", "writes", "paper"
        share = edge_attr_dict[edges][:, 0]
        return {"paper": gathered(self.linear(x_dict["author"]), edge_index_dict[edges], share, len(x_dict["paper"]))}


class ByWeight(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels)

    def forward(self, x, edge_index, edge_weight):
        return gathered(self.linear(x), edge_index, edge_weight, len(x))
"""
EVERY: dict[str, Any] = {"hidden": (), "fanout": (ALL,), "epochs": 1, "lr": 0.0, "eval_every": 0, "seed": 3}

#: The loader needs PyG.
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def _pyg() -> None:
    # Not while tests are collected, which every process does: it takes seconds.
    pytest.importorskip("torch_geometric.nn")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "by_column.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))


def scored(dataset: Any, config: TrainConfig, messages: Any, label: Any, split: Any) -> None:
    """Check a run by the module's parameters, and what every vertex gathers: each row, with a column of ones."""
    result = train(LoneCommunicator(), config)
    arrays = read_checkpoint(Run.open(dataset, config.run_name).checkpoints).arrays
    weight, bias = (arrays[f"parameter/module.linear.{name}"] for name in ("weight", "bias"))
    scores = messages @ np.vstack([weight.T, bias])
    known = label >= 0
    expected = nn.functional.cross_entropy(
        torch.tensor(scores[known & (split == "train")]), torch.tensor(label[known & (split == "train")])
    )
    assert_close(result["loss"], [float(expected)])
    for name, of in (("val", "valid"), ("test", "test")):
        chosen = known & (split == of)
        assert result[f"{name}_accuracy"] == pytest.approx((scores.argmax(1) == label)[chosen].mean())


@pytest.mark.usefixtures("own")
def test_a_column_of_a_relation(tmp_path: Path) -> None:
    given = tables()
    dataset: Any = with_topics(store(tmp_path / "catalog", "papers", given))
    fixed: dict[str, Any] = {"mode": "neighbor", "of_type": "paper", "model": "by_column:ByShare", "threads": 1}
    config = TrainConfig.of(
        catalog=str(tmp_path / "catalog"), dataset="papers", run="own", precision="float64", **fixed, **EVERY
    )
    author, paper = (given[name].set_index("id").sort_index() for name in ("author", "paper"))
    writes, count = given["writes"], COUNTS["paper"]
    rows = np.hstack([author.to_numpy(), np.ones((len(author), 1))]).astype(np.float32)
    share = writes["share"].to_numpy().astype(np.float32)[:, None]
    messages = np.zeros((count, rows.shape[1]))
    np.add.at(messages, writes["p"], rows[writes["a"]].astype(float) * share)
    order = dataset.typed_graph().original_id("paper")
    label = paper["y"].to_numpy()[order]
    scored(dataset, config, messages[order], label, paper["split"].to_numpy()[order])
    batch = next(iter(gnnloom.loader(dataset, fanout=ALL, of_type="paper", batch_size=count)))
    stored = dataset.typed_graph().relation("writes").column("feature")
    found = batch["author", "writes", "paper"]
    np.testing.assert_array_equal(found.edge_attr, stored[found.e_id.numpy()])
    assert WRITES[4] == "share as feature"
    forecast(config)


@pytest.mark.usefixtures("own")
def test_the_weights_of_a_graph_without_types(tmp_path: Path) -> None:
    catalog, given = Catalog(tmp_path / "catalog"), problem("web", 50, 200, symmetric=False, weighted=True)
    dataset: Dataset = store_for_sampling(catalog, given, 1)
    config = sampled_config(catalog, "web", "neighbor", "own", model="by_column:ByWeight", **EVERY, feature_norm="none")
    rows = np.hstack([given.feature, np.ones((len(given.feature), 1))])
    split = np.array(["none", "train", "valid", "test"])[given.split]
    scored(dataset, config, given.adjacency @ rows, given.label, split)
    batch: Any = next(iter(gnnloom.loader(dataset, fanout=ALL, batch_size=50)))
    weight: Tensor = batch.edge_weight
    source, target = batch.n_id[batch.edge_index].numpy()
    np.testing.assert_allclose(weight, np.asarray(given.adjacency[target, source]).ravel(), rtol=1e-6)
    forecast(config)


def forecast(config: TrainConfig) -> None:
    """Check that a plan knows the memory, and that a wider model takes more."""
    usual, wide = (
        project_training(config.with_options(run="plan", precision=precision)) for precision in ("float32", "float64")
    )
    assert max(usual.peak_memory) > usual.process_memory
    assert wide.written_bytes > usual.written_bytes
