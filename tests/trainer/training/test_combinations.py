"""A combination of mode, model, task and features that the manual allows is trained; every other one is refused."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnloom
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.modes.registry import MODES
from gnnloom.trainer.tasks.registry import TASKS
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.rehearsal.projection import project_training
from support.lone import LoneCommunicator
from support.lone_training import install

N = 40
_PAGE = Path(__file__).resolve().parents[3] / "docs" / "generate" / "combinations.py"


def generator() -> Any:
    """The module that makes the tables of the manual."""
    spec = importlib.util.spec_from_file_location("combinations", _PAGE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look for their module.
    sys.modules["combinations"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A dataset for each task, named like it, with all that its modes read for one rank."""
    root, rng = tmp_path_factory.mktemp("combinations"), np.random.default_rng(0)
    ring = np.stack([np.arange(N), (np.arange(N) + 1) % N], 1)
    drawn = rng.integers(0, N, (160, 2))
    edges = np.unique(np.concatenate([ring, drawn[drawn[:, 0] != drawn[:, 1]]]), axis=0)
    pairs, classes = edges[edges[:, 0] < edges[:, 1]][:60], rng.integers(0, 3, N)
    values = {"edge-class": rng.integers(0, 3, 60), "edge-number": rng.standard_normal(60)}
    labels: dict[str, dict[str, Any]] = {
        "multilabel": {"label": rng.integers(0, 2, (N, 4))},
        "number": {"target": rng.standard_normal((N, 1)).astype(np.float32)},
    }
    given: dict[str, Any] = {"split": rng.integers(1, 4, N).astype(np.uint8)}
    given["feature"] = np.abs(rng.standard_normal((N, 5))).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        for name, task in TASKS.items():
            here: dict[str, Any] = {"catalog": root / "catalog", "workers": 0}
            gnnloom.ingest(name, edges, undirected=True, **here)
            gnnloom.features(name, **given, **labels.get(name, {"label": classes}), **here)
            if name == "link":
                gnnloom.draw_links(name, **here)
            elif task.on_pairs:
                for number, split in enumerate(("train", "valid", "test")):
                    rows = [f"{u},{v},{x}" for (u, v), x in zip(pairs, values[name], strict=True)][number::3]
                    (root / f"{split}.csv").write_text("\n".join(rows) + "\n")
                files: dict[str, Any] = {split: root / f"{split}.csv" for split in ("train", "valid", "test")}
                gnnloom.read_links(name, values=task.value, **files, **here)
            gnnloom.partition(name, 1, links=task.on_pairs, method="block", **here)
            gnnloom.shard(name, 1, links=task.on_pairs, **here)
            gnnloom.propagate(name, steps=2, catalog=here["catalog"])
            if not task.on_pairs:
                gnnloom.sample(name, batch_size=16, fanout=(4, 4), epochs=1, **here)
    return Catalog(root / "catalog")


def configuration(catalog: Catalog, given: Any, **options: Any) -> TrainConfig:
    """A short training of a combination."""
    dataset, task, mode = catalog[given.task], TASKS[given.task], MODES[given.mode].options
    options |= {"mode": given.mode, "model": given.model, "task": given.task, "hidden": (8,), "epochs": 1}
    options |= {"run": "-".join((given.mode, given.model, given.features.strip("`- ").replace(" ", "-")))}
    options |= generator().FEATURES[given.features]
    options |= {"batch_size": 16} if "batch_size" in mode else {}
    options |= {"sampler": "edge"} if "sampler" in mode else {}
    options |= {"fanout": (4, 4)} if "fanout" in mode else {}
    options |= {"output_dim": 6} if task.on_pairs else {}
    if "samples" in options:
        options["samples"] = "KEY" if task.on_pairs else dataset.samples().artifact.key
    return TrainConfig.of(catalog=str(catalog.root), dataset=dataset.name, threads=1, **options)


@pytest.mark.long
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_combination_trains_and_is_forecast_or_is_refused_before_data_are_read(
    catalog: Catalog, precision: str
) -> None:
    trained = 0
    for each in generator().combinations():
        if each.refused:
            with pytest.raises(InputError):
                configuration(catalog, each, precision=precision)
            continue
        config = configuration(catalog, each, precision=precision)
        config = TrainConfig.of(**{**config.to_json(), "run": f"{config.run.name}-{precision}"})
        assert project_training(config).peak_memory, each
        assert np.isfinite(train(LoneCommunicator(), config)["loss"]).all(), each
        trained += 1
    assert trained > 200


def test_the_table_says_what_trains() -> None:
    tables = generator()
    assert "| `full` | `gcn`, `sage`, `gin`, `gat`, `mlp` | yes | yes |  | yes |" in tables.table("vertices")
    assert "| `rows` |" not in tables.table("pairs")
    assert "| `summa` | `gcn`, `sage` |  |  |" in tables.table("algorithms")
