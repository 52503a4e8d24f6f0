"""A subclass of GCN, GraphSAGE, GIN or GAT that keeps features has exact gradients: only these classes reuse memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import gnnloom.trainer.models
from gnnloom.storage import Catalog
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.kernels.dispatch import Dropout
from gnnloom.trainer.models.kind import ModelKind
from gnnloom.trainer.models.networks.model import Model
from gnnloom.trainer.place.place import Place
from support.covering import FEW_OR_EVERY
from support.dense_models import DenseModel
from support.mpi import train_all
from support.problems import problem
from support.tolerance import ADAM_BITS, assert_close

PROBLEM = problem("graph", 60, 240, symmetric=False)
EPOCHS, SEED, HEADS, DROPOUT = 2, 3, 2, 0.4
KINDS = {"gcn": "GCN", "sage": "SAGE", "gin": "GIN", "gat": "GAT"}
#: Options of all models, with what else reads the features of a layer; and how subclasses keep features.
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"bias": False, "product_order": "transform-first"},
    "residual": {"residual": True, "dropout": DROPOUT},
    "layer": {"norm": "layer", "dropout": DROPOUT},
    # A bias before the normalization has no gradient but rounding errors, which Adam would divide by their own size.
    "batch": {"norm": "batch", "residual": True, "optimizer": "sgd"},
}
STILL: dict[str, Any] = {"lr": 0.0, "epochs": 1}
WAYS = {
    "plain": ("Jumping", "Skipping"),
    "residual": ("Jumping",),
    "layer": ("Jumping", "Skipping"),
    "batch": ("Jumping",),
}
CASES = [(kind, title, way) for kind in KINDS for title, ways in WAYS.items() for way in ways]
#: Every class with both ways, and every option with two classes.
FEW = [
    *((kind, title, "Jumping") for kind, title in zip(KINDS, ("residual", "batch", "residual", "batch"), strict=True)),
    *((kind, title, "Skipping") for kind, title in zip(KINDS, ("plain", "plain", "layer", "layer"), strict=True)),
]


@dataclass
class DenseSubclass(DenseModel):
    """The dense model whose last layer also takes what the subclasses keep."""

    way: str = ""
    dropout: float = 0.0
    epoch: int = 0
    kept: list[Tensor] = field(default_factory=list)

    def scores(self, feature: Tensor, training: bool = True) -> Tensor:
        hidden, outputs, kept = feature, list[Tensor](), list[Tensor]()
        for layer in range(self.num_layers):
            if layer == self.num_layers - 1 and self.way == "Jumping":
                hidden = torch.stack(kept).sum(0)
            given = hidden * self._mask(hidden, layer)
            outputs.append(self.layer(given, layer))
            if layer < self.num_layers - 1:
                activated = self._normalized(outputs[-1], layer, training)
                activated = torch.nn.functional.elu(activated) if self.kind == "gat" else torch.relu(activated)
                hidden = activated + hidden if self._adds(layer, hidden, activated) else activated
                kept.append(hidden)
        self.epoch += 1
        return outputs[-1] + outputs[0][:, : outputs[-1].shape[1]] if self.way == "Skipping" else outputs[-1]

    def _mask(self, hidden: Tensor, layer: int) -> Tensor:
        """The factors of dropout, which are a function of the seed, epoch, layer, vertex and feature."""
        dropout, vertex = Dropout(self.dropout, SEED, Place()), np.arange(len(hidden))
        return dropout.apply(torch.ones_like(hidden).detach(), vertex, 0, self.epoch, layer)

    def __getitem__(self, name: str) -> Tensor:
        # A model without biases has none.
        return self.parameters.get(name, torch.zeros((), dtype=torch.float64))


def config(catalog: Catalog, run: str, ranks: int, model: str, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {"hidden": (6, 6, 6), "heads": HEADS, "epochs": EPOCHS, "lr": 0.02, "dropout": 0.0}
    fixed |= {"precision": "float64", "seed": SEED, "eval_every": 0, "final_eval": False, "threads": 1}
    return TrainConfig.of(
        catalog=str(catalog.root), dataset="graph", run=run, ranks=ranks, model=model, **{**fixed, **options}
    )


class Results:
    """All runs of one MPI job, by name."""

    def __init__(self, catalog: Catalog, folder: Path, cases: list[tuple[str, str, str]]) -> None:
        self.catalog, self.cases = catalog, cases
        # The weights are those of gnnloom's class: at learning rate 0 nothing changes.
        configs = [
            config(catalog, f"{kind}-{title}-start", 1, kind, **{**OPTIONS[title], **STILL})
            for kind, title in dict.fromkeys((kind, title) for kind, title, _ in cases)
        ]
        for kind, title, way in cases:
            model = f"support.own_models:{way}{KINDS[kind]}"
            configs.append(config(catalog, f"{kind}-{title}-{way.lower()}", 2, model, **OPTIONS[title]))
        found = train_all(folder, configs)
        self.by_run = {each.run.name: result for each, result in zip(configs, found, strict=True)}

    def arrays(self, run: str) -> dict[str, np.ndarray]:
        return dict(read_checkpoint(self.catalog["graph"].run_path(run) / "checkpoint").arrays)


@pytest.fixture(scope="module", params=FEW_OR_EVERY)
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("subclasses")
    catalog = Catalog(folder / "catalog")
    PROBLEM.store(catalog, 1, 2)
    return Results(catalog, folder, CASES if request.param else FEW)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_parameters_equal_those_of_autograd(results: Results, kind: str) -> None:
    for _, title, way in (case for case in results.cases if case[0] == kind):
        _check(results, kind, title, way)


def _check(results: Results, kind: str, title: str, way: str) -> None:
    given = {name: OPTIONS[title][name] for name in ("norm", "residual", "dropout") if name in OPTIONS[title]}
    dense: DenseModel = DenseSubclass.from_arrays(
        kind, PROBLEM.adjacency.toarray(), results.arrays(f"{kind}-{title}-start"), heads=HEADS, way=way, **given
    )
    losses = dense.train(
        PROBLEM.feature, PROBLEM.label, PROBLEM.training, EPOCHS, 0.02, OPTIONS[title].get("optimizer", "adam")
    )
    run = f"{kind}-{title}-{way.lower()}"
    assert_close(results.by_run[run]["loss"], losses, steps=EPOCHS * 4, bits=ADAM_BITS, message=run)
    arrays = results.arrays(run)
    for name, parameter in dense.parameters.items():
        expected, found = parameter.detach().numpy(), arrays[f"parameter/{name}"]
        assert_close(found, expected, steps=EPOCHS * 4, bits=ADAM_BITS, message=f"{run} {name}")


def test_only_the_classes_themselves_reuse_memory_and_subclasses_have_their_facts() -> None:
    kinds = load_descriptors(gnnloom.trainer.models, "MODEL", "gnnloom.models", ModelKind)
    assert [name for name, kind in kinds.items() if not kind.is_rowwise] == list(KINDS)
    for kind in kinds.values():
        model = kind.load()
        derived: type[Model] = type("Derived", (model,), {})
        assert not derived.reuses_memory
        assert model.reuses_memory or kind.is_rowwise
        for found in (model, derived):
            assert found.normalizations == kind.normalizations
            assert (found.needs, found.takes_weights) == (kind.needs, kind.takes_weights)
            assert dict(found.own_options) == dict(kind.options)
