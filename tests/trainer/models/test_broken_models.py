"""A model that breaks the contract is one clear error, before its first epoch wherever that can be known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from support.lone import LoneCommunicator
from support.mpi import run_ranks, train_all
from support.own_models import FAULTS
from support.problems import problem

PROBLEM = problem("graph", 60, 240, symmetric=False)
RANKS = 3
#: What is said of a model that differs between ranks.
DIFFERENT = {
    "differs": "parameter weights.1 has another value on ranks 1, 2 than on rank 0; draw numbers from",
    "more parameters": "a further parameter has another name, shape, dtype or requires_grad on ranks 1, 2 than",
    "buffer differs": "buffer noise has another value on ranks 1, 2 than on rank 0",
}
#: What is said of a model that cannot be trained.
UNTRAINABLE = {
    "another dtype": r"parameter extra.weight is torch.float16, expected torch.float32; create it with",
    "not finite": r"parameter extra is not finite; initialize all its numbers",
    "lazy": r"parameter extra.weight has no size yet; use a module that is given all its sizes",
    "complex buffer": r"buffer phase cannot be stored in a checkpoint: expected dense numbers on the CPU",
    "name": r"parameter extra\.of/weight needs another name: of letters, digits and underscores",
    "all frozen": r"no parameter to train; all have requires_grad=False",
    "late parameter": r"parameter late was created or unfrozen during training",
    "no tensor": r"model Broken: layer 0 returns 'NoneType', expected shape \(60, 5\)",
    "wrong width": r"model Broken: layer 1 returns shape \(60, 6\), expected shape \(60, 3\)",
    "fewer rows": r"model Broken: layer 0 returns shape \(59, 5\), expected shape \(60, 5\)",
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("broken") / "catalog")
    PROBLEM.store(catalog, 1, RANKS)
    PROBLEM.store_grid(catalog, "double", grid=(2, 2))
    return catalog


def config(catalog: Catalog, fault: str, ranks: int, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {"model": "support.own_models:Broken", "model_options": (f"fault={FAULTS.index(fault)}",)}
    fixed |= {"run": fault.replace(" ", "-"), "hidden": (5,), "epochs": 2, "threads": 1, **options}
    return TrainConfig.of(catalog=str(catalog.root), dataset="graph", ranks=ranks, **fixed)


@pytest.mark.slow
def test_ranks_with_other_parameters_are_named_and_so_is_the_parameter(catalog: Catalog, tmp_path: Path) -> None:
    found = train_all(tmp_path, [config(catalog, fault, RANKS) for fault in (*DIFFERENT, "none")])
    for (fault, said), result in zip(DIFFERENT.items(), found, strict=False):
        assert said in result["error"]
        assert result["code"] == InputError.exit_code
        # Nothing was begun.
        assert not Run(catalog["graph"].run_path(fault.replace(" ", "-"))).exists
    assert len(found[-1]["loss"]) == 2


@pytest.mark.parametrize("fault", list(UNTRAINABLE))
def test_a_model_that_cannot_be_trained_is_refused(catalog: Catalog, fault: str) -> None:
    with pytest.raises((InputError, CollectiveError), match=UNTRAINABLE[fault]):
        train(LoneCommunicator(), config(catalog, fault, 1))


def run_by_hand(catalog: Catalog, model: str, ranks: int, *options: str) -> str:
    """Train on new ranks, which fail; returns what they print."""
    given = "graph", "--catalog", str(catalog.root), "--ranks", str(ranks), "--model", f"support.own_models:{model}"
    fixed = "--hidden", "5", "--epochs", "2", "--threads", "1"
    done = run_ranks(ranks, "-m", "gnnloom.trainer", *given, *fixed, *options)
    assert done.returncode
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_model_that_branches_by_rank_is_told_to_make_the_same_calls(catalog: Catalog) -> None:
    options = "--model-options", f"fault={FAULTS.index('branches')}", "--wait-timeout", "2", "--run", "branches"
    found = run_by_hand(catalog, "Broken", RANKS, *options)
    # Which one depends on the sizes of the messages that meet.
    said = "every rank must make the same calls in the same order", "waited longer than 2 s for other ranks"
    assert any(text in found for text in said), found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("WithLinear", "Linear linear needs whole rows on one rank"),
        ("WithDropout", "nn.Dropout"),
    ],
)
def test_modules_of_torch_are_refused_where_they_would_be_wrong(catalog: Catalog, model: str, said: str) -> None:
    options = "--algorithm", "tensor3d", "--grid", "2x1x2", "--hidden", "6", "--run", model.lower()
    assert said in run_by_hand(catalog, model, 4, *options)
