"""A module of torch that takes features and edges is a model: what its signatures say, and what is refused."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gnnloom.storage.errors import InputError
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.models.edge_modules import read_options
from gnnloom.trainer.models.networks.edge_model import BatchEdges, EdgeCall
from gnnloom.trainer.models.registry import model_kind
from gnnloom.trainer.place.place import Place
from support.edge_modules import Sums

SUMS = "support.edge_modules:Sums"


def config(model: str = SUMS, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {"catalog": "c", "dataset": "d", "mode": "neighbor", "hidden": (8, 8)}
    return TrainConfig.of(**{**fixed, **options}, model=model)


def test_neighbors_are_drawn_once_and_the_configuration_says_so() -> None:
    found = config()
    assert found.mode.draw_once
    assert found.model.normalization == "none"
    assert TrainConfig.of(**found.to_json()) == found
    # An induced subgraph serves all layers anyway.
    assert not config(mode="subgraph").mode.draw_once
    assert config(normalization="symmetric").model.normalization == "symmetric"
    assert found.streams_adjacency
    assert found.run_name.startswith("sums-p2p-1-")
    assert found.run_name != config(model_options=("slope=0.2",)).run_name


class Passing(Sums):
    """Passes on what the class that it derives from takes."""

    def __init__(self, name: str = "a", **others: Any) -> None:
        super().__init__(**others)
        self.name = name


class Open(nn.Module):
    """Takes anything, as PyG's models do for their convolutions."""

    def __init__(self, in_channels: int, act: str | None = "relu", **others: Any) -> None:
        super().__init__()
        self.given = in_channels, act, others


def test_values_have_the_types_of_the_constructor() -> None:
    given = "slope=1", "shared=true"
    assert config(model_options=given).model.own_options() == {"slope": 1.0, "shared": True}
    assert read_options(Passing, ["name=3", "slope=2"]) == {"name": "3", "slope": 2.0}
    with pytest.raises(InputError, match=r"name=value .*slope, shared, name"):
        read_options(Passing, ["other=3"])


def check_open(found: type[Any]) -> None:
    given = "act=elu", "aggr=max", "heads=4", "bias=false", "norm=None", "factor=0.5"
    expected = {"act": "elu", "aggr": "max", "heads": 4, "bias": False, "norm": None, "factor": 0.5}
    assert read_options(found, given) == expected
    with pytest.raises(InputError, match="'in_channels=3': "):
        read_options(found, ["in_channels=3"])


def test_a_constructor_that_takes_anything_gets_literals() -> None:
    check_open(Open)


def test_the_constructors_of_pyg_get_literals_for_their_convolutions() -> None:
    check_open(pytest.importorskip("torch_geometric.nn").GAT)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"mode": "full"},
            "model .*Sums': mode full does not give a model the edges of batches; choose --mode subgraph or neighbor",
        ),
        ({"mode": "minibatch"}, r"mode minibatch does not .*docs/how-to/pyg-models\.md and docs/how-to/own-model\.md"),
        ({"hidden": (8, 4)}, r"hidden \(8, 4\): model .* give equal ones, such as 8,8"),
        ({"norm": "layer"}, "norm 'layer': model .* --model-options"),
        ({"bias": False}, "bias False: model"),
        ({"heads": 8}, "heads 8: model"),
        ({"save_embeddings": True}, "save_embeddings: model .*Sums does not give embeddings; choose --model gcn or"),
        ({"algorithm": "summa"}, "model .*Sums': algorithm summa does not .*; choose --algorithm p2p"),
        ({"model": "support.edge_modules:ByDegrees", "normalization": "mean"}, "supports only none"),
        (
            {"model": "support.edge_modules:ByDegrees", "mode": "subgraph", "presamples": 3},
            "presamples 3: model .*ByDegrees does not take weights of edges",
        ),
        (
            {"model": "support.edge_modules:OtherForward"},
            r"its forward takes \(x, edge_index, edge_attr\), expected \(x, edge_index\) or \(x, edge_index, edge_w",
        ),
        ({"model_options": ("slop=1",)}, "'slop=1': expected name=value with the names slope, shared"),
        ({"model_options": ("hidden_channels=1",)}, "'hidden_channels=1': hidden_channels comes from --hidden"),
        ({"model_options": ("slope=steep",)}, "'slope=steep': expected a number"),
        ({"model_options": ("shared=1",)}, "'shared=1': expected true or false"),
        ({"model": "support.edge_modules:sums"}, r"expected a subclass of .*Model"),
    ],
)
def test_what_cannot_be_is_one_clear_error(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        config(**options)


def test_without_pyg_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] == "torch_geometric":
            monkeypatch.delitem(sys.modules, name)

    class Missing:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            if name.partition(".")[0] == "torch_geometric":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Missing, *sys.meta_path])
    with pytest.raises(InputError, match=r"No module named 'torch_geometric'; install PyG with pip install 'gnnloom\["):
        model_kind("torch_geometric.nn:GraphSAGE")


class Median(Sums):
    """Fails without edges, as a median of PyG does."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        x[edge_index[0]].sort(0).values.index_select(0, torch.zeros(len(x), dtype=torch.int64))
        return super().forward(x, edge_index, edge_weight)


def test_a_module_that_fails_without_edges_is_evaluated_on_vertices_without_any() -> None:
    module, place = Median(3, 4, 2, 2), Place(torch.float32)
    feature, none = torch.rand(5, 3), torch.zeros((2, 0), dtype=torch.int64)
    call = EdgeCall("Median", weighs=False, trims=False, num_outputs=2)
    with pytest.raises(InputError, match="fails on a batch without edges"):
        call(module, feature, BatchEdges(none, None, 4), place)
    module.eval()
    found = call(module, feature, BatchEdges(none, None, 4), place)
    assert torch.equal(found, Sums.forward(module, feature, none)[:4])
