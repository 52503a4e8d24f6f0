"""The example that trains a model of PyG runs alone and in several processes, whose steps are those of all batches."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gnnloom
from support.tolerance import assert_close

MODULE = "gnnloom.workflows.examples.pyg_training"
SIZES: dict[str, Any] = {"vertices": 2000, "edges": 12000, "classes": 4, "dim": 16, "noise": 1.0}


@pytest.fixture(autouse=True, scope="module")
def _pyg() -> None:
    # Not while tests are collected, which every process does: it takes seconds.
    pytest.importorskip("torch_geometric.nn")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example")
    gnnloom.generate("web", "sbm", catalog=folder, workers=0, **SIZES)
    return folder


def expected(catalog: Path, size: int) -> list[float]:
    """Mean losses of every ``size``-th batch in plain SGD whose steps average the gradients of so many."""
    from gnnloom.workflows.examples.pyg_training import CLASSES, FEATURES, step_loss

    torch.manual_seed(0)
    model = importlib.import_module("torch_geometric.nn").GraphSAGE(FEATURES, 32, num_layers=2, out_channels=CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = gnnloom.loader("web", catalog=catalog, fanout=(10, 5), batch_size=32, drop_last=True)
    losses = []
    for _ in range(3):
        batches, found = list(loader), []
        for first in range(0, len(batches) - len(batches) % size, size):
            optimizer.zero_grad()
            for batch in batches[first : first + size]:
                loss = step_loss(model, batch)
                (loss / size).backward()  # type: ignore[no-untyped-call]
                found.append(float(loss.detach()))
            optimizer.step()
        losses.append(float(np.mean(found[::size])))
    return losses


def test_alone(catalog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gnnloom.workflows.examples.pyg_training import main

    monkeypatch.setattr("sys.argv", ["", "web", "--catalog", str(catalog)])
    losses = main()
    assert losses[-1] < losses[0]
    assert_close(losses, expected(catalog, 1), dtype=np.float32)


@pytest.mark.long
def test_in_two_processes(catalog: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", MODULE]
    done = subprocess.run(
        [*command, "web", "--catalog", str(catalog)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    losses = [float(line.removeprefix("loss ")) for line in done.stdout.splitlines() if line.startswith("loss")]
    assert len(losses) == 3
    # Printed with six digits.
    assert_close(losses, expected(catalog, 2), steps=8, dtype=np.float32)
