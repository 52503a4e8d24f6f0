"""Training in bf16 follows the losses of float32, for every algorithm, model and number of ranks, at half the bytes.

Models other than GCN follow them at the rates below only; docs/explanation/algorithms.md says how far others lead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gnnloom.storage import Catalog
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.algorithms.steps import Volume
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.planner.describe import GraphFacts, epoch_steps, workload
from gnnloom.trainer.training.loop import train
from support.covering import FEW_OR_EVERY
from support.lone import LoneCommunicator
from support.mpi import train_all
from support.problems import Problem

#: They share training runs on several ranks.
pytestmark = pytest.mark.slow

NUM_VERTICES, NUM_CLASSES = 300, 3
EPOCHS, FEW_EPOCHS = 50, 5
#: Two units in the last of the eight bits of a bfloat16 number, for sums in another order.
LAST_BITS = 2 * 2**-8

#: Variants of the training, each on the algorithms where it works in another way.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "sage": ("p2p", {"model": "sage"}),
    "gin": ("p2p", {"model": "gin", "lr": 0.002}),
    "gat": ("p2p", {"model": "gat", "heads": 2}),
    "gatv2": ("p2p", {"model": "gat", "attention": "v2", "heads": 2}),
    "norms": ("tensor3d", {"norm": "layer", "unit_embedding": True, "hidden": (16, 16, 16), "residual": True}),
    "batch-norm": ("summa", {"norm": "batch", "dropout": 0.2}),
    "trained-features": ("p2p", {"train_features": True}),
    "transform-first": ("split3d", {"product_order": "transform-first", "skip_input_gradient": False}),
    "long-steps": ("p2p", {"lr": 0.05}),
}
#: Algorithms whose bytes in both precisions are compared.
COUNTED = ("p2p", "summa", "tensor3d")
VARIANTS = {**{name: (name, dict[str, Any]()) for name in ALGORITHMS}, **MODELS}

#: Results by variant, precision and number of ranks.
Found = dict[tuple[str, str, int], dict[str, Any]]


def planted() -> Problem:
    """Classes that the edges and the features predict, but not well enough for a loss near 0."""
    rng = np.random.default_rng(4)
    label = rng.integers(0, NUM_CLASSES, NUM_VERTICES)
    pairs = rng.integers(0, NUM_VERTICES, (2, 8 * NUM_VERTICES))
    kept = (label[pairs[0]] == label[pairs[1]]) | (rng.random(pairs.shape[1]) < 0.3)
    rows, columns = pairs[:, kept]
    loops = np.arange(NUM_VERTICES)
    ends = np.concatenate([rows, columns, loops]), np.concatenate([columns, rows, loops])
    adjacency = scipy.sparse.csr_array((np.ones(len(ends[0])), ends), shape=(NUM_VERTICES, NUM_VERTICES))
    adjacency.data[:] = 1
    feature = (np.eye(NUM_CLASSES)[label] + 2.5 * rng.standard_normal((NUM_VERTICES, NUM_CLASSES))).astype(np.float32)
    return Problem("planted", adjacency, True, feature, label, rng.integers(1, 4, NUM_VERTICES))


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("bf16") / "catalog")
    given = planted()
    given.store(catalog, 1, 2, 4)
    replace(given, name="grid").store_grid(catalog, "double", grid=(4, 4))
    return catalog


def _config(catalog: Catalog, variant: str, precision: str, ranks: int, epochs: int) -> TrainConfig:
    algorithm, options = VARIANTS[variant]
    fixed: dict[str, Any] = {
        "algorithm": algorithm,
        "precision": precision,
        "ranks": ranks,
        "hidden": (16,),
        "epochs": epochs,
        "lr": 0.01,
        "eval_every": 0,
        "threads": 1,
        "run": f"{variant}-{precision}-{ranks}-{epochs}",
    }
    dataset = "planted" if algorithm == "p2p" else "grid"
    return TrainConfig.of(catalog=str(catalog.root), dataset=dataset, **{**fixed, **options})


@pytest.fixture(scope="module", params=FEW_OR_EVERY)
def results(request: pytest.FixtureRequest, catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Results of GCN with every algorithm."""
    epochs = EPOCHS if request.param else FEW_EPOCHS
    return _trained(catalog, tmp_path_factory.mktemp("jobs"), ALGORITHMS, {"p2p": 2}, epochs)


@pytest.fixture(scope="module")
def model_results(catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Results of the other models and options."""
    return _trained(catalog, tmp_path_factory.mktemp("models"), MODELS, {}, EPOCHS)


def _trained(catalog: Catalog, folder: Path, variants: Iterable[str], others: Mapping[str, int], epochs: int) -> Found:
    """Results on 1 and 4 ranks, and for some variants on another number of them."""
    keys = [
        (variant, precision, 4)
        for variant in variants
        for precision in ("float32", "bf16")
        if precision == "bf16" or epochs == EPOCHS or variant in COUNTED
    ]
    keys += [(variant, precision, ranks) for variant, ranks in others.items() for precision in ("float32", "bf16")]
    found = dict(zip(keys, train_all(folder, [_config(catalog, *key, epochs) for key in keys]), strict=True))
    for variant in variants:
        for precision in ("float32", "bf16"):
            config = _config(catalog, variant, precision, 1, epochs)
            found[variant, precision, 1] = train(LoneCommunicator(), config)
    return found


@pytest.mark.parametrize("variant", ALGORITHMS)
def test_losses_of_every_algorithm_follow_float32(results: Found, variant: str) -> None:
    _check_losses(results, variant)


@pytest.mark.long
@pytest.mark.parametrize("variant", MODELS)
def test_losses_of_every_model_follow_float32(model_results: Found, variant: str) -> None:
    _check_losses(model_results, variant)


def _check_losses(results: Found, variant: str) -> None:
    """Losses of all epochs are within 1 % of those in float32, and do not depend on the number of ranks."""
    for ranks in (1, 4):
        _check_precision(results, variant, ranks)
    np.testing.assert_allclose(
        results[variant, "bf16", 4]["loss"], results[variant, "bf16", 1]["loss"], rtol=LAST_BITS, err_msg=variant
    )


def _check_precision(results: Found, variant: str, ranks: int) -> None:
    # In float32, losses on several ranks are those of one up to rounding, which other tests compare.
    wide = results.get((variant, "float32", ranks), results[variant, "float32", 1])["loss"]
    narrow = results[variant, "bf16", ranks]["loss"]
    assert len(wide) in {EPOCHS, FEW_EPOCHS}
    # Training gets somewhere, and it does compute in another precision.
    assert wide[-1] < 0.97 * wide[0]
    assert wide != narrow
    np.testing.assert_allclose(narrow, wide, rtol=0.01)


@pytest.mark.parametrize("ranks", [2, 4])
def test_rows_between_ranks_have_half_the_bytes_and_gradients_of_weights_as_many(results: Found, ranks: int) -> None:
    wide, narrow = (results["p2p", precision, ranks]["bytes_by_kind"] for precision in ("float32", "bf16"))
    assert wide["halo backward"] == 2 * narrow["halo backward"] > 0
    assert wide["gradient"] == narrow["gradient"] > 0
    # In SUMMA the adjacency travels as before.
    if ranks == 4:
        wide, narrow = (results["summa", precision, ranks]["bytes_by_kind"] for precision in ("float32", "bf16"))
        assert wide["propagate forward"] == 2 * narrow["propagate forward"] > 0
        assert wide["adjacency"] == narrow["adjacency"] > 0


def test_sums_over_ranks_are_float32_and_counted_as_such(
    results: Found,
) -> None:
    wide, narrow = (results["tensor3d", precision, 4]["bytes_by_kind"] for precision in ("float32", "bf16"))
    assert wide["transform forward"] == narrow["transform forward"] > 0


@pytest.mark.parametrize("variant", ["broadcast", "replicated", "summa", "split3d", "tensor3d"])
def test_predicted_bytes_equal_the_counted_ones(results: Found, catalog: Catalog, variant: str) -> None:
    given = planted()
    facts = GraphFacts(
        num_vertices=NUM_VERTICES,
        nnz=given.adjacency.nnz,
        num_features=NUM_CLASSES,
        num_outputs=NUM_CLASSES,
        num_training=int(given.training.sum()),
        symmetric=True,
        weighted=False,
    )
    config = _config(catalog, variant, "bf16", 4, EPOCHS)
    predicted = Volume.of(epoch_steps(config.algorithm, workload(config, facts)))
    assert predicted.bytes == results[variant, "bf16", 4]["bytes_by_kind"]
