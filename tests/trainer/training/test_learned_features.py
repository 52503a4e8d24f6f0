"""Input features that are learned: from the same start on every layout, as dense training learns them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.random_numbers import normal, stream_key
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.trainer.config.train_config import TrainConfig
from support.dense import DenseGCN, normalized, train_dense
from support.lone_training import lone_session
from support.mpi import train_all
from support.problems import problem
from support.tolerance import ADAM_BITS, assert_close

Layout = tuple[str, tuple[int, ...]]

WIDTH, SEED, EPOCHS = 6, 3, 5
BARE = problem("bare", 60, 240, symmetric=False, bare=True)
#: Algorithms and grids, on 1 to 6 ranks; ranks of some have fewer columns than others.
LAYOUTS: tuple[Layout, ...] = (
    ("p2p", (1,)), ("p2p", (2,)), ("p2p", (4,)), ("broadcast", (3,)), ("replicated", (2, 2)), ("summa", (2, 3)),
    ("split3d", (2, 2, 1)), ("tensor3d", (1, 2, 2)),
)  # fmt: skip


def config(catalog: Catalog, run: str, name: str = "bare", **options: Any) -> TrainConfig:
    """A training in float64 on one thread that learns its features; ``options`` override."""
    fixed: dict[str, Any] = {"hidden": (8,), "epochs": EPOCHS, "threads": 1, "precision": "float64", "seed": SEED}
    fixed |= {"embed": WIDTH, "eval_every": 0, "checkpoint_every": 1}
    return TrainConfig(catalog=str(catalog.root), dataset=name, run=run, **{**fixed, **options})


def first_numbers(count: int, width: int = WIDTH) -> NDArray[Any]:
    """(count, width) float64 the numbers that the features of a graph start from."""
    numbers: NDArray[Any] = normal(stream_key(SEED, "learned features"), 0, count * width).astype(np.float64)
    return numbers.reshape(count, width) / math.sqrt(width)


def first_model(catalog: Catalog, name: str = "bare") -> DenseGCN:
    """The dense model with the initial weights of all runs."""
    model = lone_session(config(catalog, "never", name)).model
    operator = normalized(BARE.adjacency.toarray(), "symmetric")
    arrays = {key: [each.detach().numpy().copy() for each in getattr(model, key)] for key in ("weights", "biases")}
    return DenseGCN(operator, **arrays)


def test_the_losses_are_those_of_dense_training_on_every_layout(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog")
    BARE.store_grid(catalog, "double", grid=(3, 2))
    BARE.store(catalog, 1, 2, 4)
    configs = [
        config(catalog, f"{name}-{'x'.join(map(str, grid))}", algorithm=name, grid=grid, ranks=int(np.prod(grid)))
        for name, grid in LAYOUTS
    ]
    results = train_all(tmp_path, configs)
    dense, feature = first_model(catalog), first_numbers(60)
    losses = train_dense(dense, feature, BARE.label, BARE.training, EPOCHS, 0.01, "adam", train_features=True)
    for given, result in zip(configs, results, strict=True):
        assert_close(result["loss"], losses, steps=EPOCHS * 2, message=given.run_name)
        arrays = read_checkpoint(catalog["bare"].run_path(given.run_name) / "checkpoint").arrays
        assert_close(arrays["parameter/feature"], feature, steps=EPOCHS * 2, bits=ADAM_BITS, message=given.run_name)
        assert result["val_accuracy"] is not None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"train_features": True}, "train_features: reads stored features and trains them, but with embed 6"),
        ({"feature_norm": "row"}, r"feature_norm 'row': learned input features \(embed 6\) are not scaled"),
        ({"embed": -1}, "embed -1"),
    ],
)
def test_what_would_do_nothing_or_cannot_work_is_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        config(Catalog(tmp_path / "catalog"), "refused", **options)
