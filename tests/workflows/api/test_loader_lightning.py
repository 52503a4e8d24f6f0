"""Lightning's loops train on the batches of the loader, epoch after epoch, with and without workers of torch."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import gnnloom
from gnnloom.storage import Catalog
from support.problems import problem
from support.sampled import store_for_sampling


@pytest.fixture(scope="module")
def lightning() -> Any:
    pytest.importorskip("torch_geometric.nn")
    # Lightning imports what torch no longer recommends.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("lightning")


def batches_of(tmp_path: Path) -> gnnloom.Loader:
    catalog = Catalog(tmp_path)
    store_for_sampling(catalog, problem("graph", 120, 500, symmetric=False), 1)
    return gnnloom.loader("graph", catalog=catalog, fanout=(3, 2), batch_size=8)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("workers", [None, 0, 2])
def test_lightning_trains_on_the_batches_of_two_epochs(lightning: Any, tmp_path: Path, workers: int | None) -> None:
    loader = batches_of(tmp_path)
    expected = [batch.n_id.tolist() for _ in range(2) for batch in loader]
    loader.set_epoch(0)
    given: Iterable[Any] = loader
    if workers is not None:
        given = DataLoader(loader, batch_size=None, num_workers=workers)
    seen = []

    class Classifier(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = importlib.import_module("torch_geometric.nn").GraphSAGE(5, 6, 2, 3)

        def training_step(self, batch: Any) -> torch.Tensor:
            seen.append(batch.n_id.tolist())
            output = self.model(batch.x, batch.edge_index)[: batch.batch_size]
            return torch.nn.functional.cross_entropy(output, batch.y[: batch.batch_size])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    lightning.Trainer(max_epochs=2, accelerator="cpu", default_root_dir=tmp_path, **quiet).fit(
        Classifier(), train_dataloaders=given
    )
    assert seen == expected
