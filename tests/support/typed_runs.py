"""Training runs on the graph of :mod:`support.typed_papers`: configurations, and what they leave behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

import gnnloom
from gnnloom.storage import Dataset
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from support.typed_papers import COUNTS

OWN = "support.typed_modules"
RANKS = (1, 2, 4)


def with_topics(dataset: Any) -> Any:
    """Give topics features, after which all types near papers have some."""
    gnnloom.features(dataset, feature=np.random.default_rng(7).normal(size=(COUNTS["topic"], 2)), of_type="topic")
    return dataset


def typed_config(dataset: Dataset, run: str, name: str = "Sage", **options: Any) -> TrainConfig:
    """A run on labels of papers, or with ``relation`` on its pairs."""
    fixed: dict[str, Any] = {
        "mode": "neighbor",
        "hidden": (6,),
        "epochs": 3,
        "seed": 3,
        "threads": 1,
        "precision": "float64",
        "batch_size": 1024,
        "eval_every": 0,
    }
    fixed |= {"task": "link", "output_dim": 5} if "relation" in options else {"of_type": "paper"}
    catalog = str(dataset.path.parent)
    model = options.pop("model", f"{OWN}:{name}")
    return TrainConfig.of(catalog=catalog, dataset=dataset.name, run=run, model=model, **{**fixed, **options})


def stored_state(dataset: Dataset, run: str) -> dict[str, Tensor]:
    """The parameters of the module of a run's last checkpoint."""
    arrays = read_checkpoint(Run.open(dataset, run).checkpoints).arrays
    prefix = "parameter/module."
    return {each.removeprefix(prefix): torch.tensor(array) for each, array in arrays.items() if each.startswith(prefix)}
