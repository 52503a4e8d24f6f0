"""After the first epoch, a training allocates nothing large: all large tensors are in the workspace."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gnnloom.storage import Catalog
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.kernels.workspace import SMALL, Workspace
from gnnloom.trainer.training.loop import EpochReport, Training, train
from support.lone import LoneCommunicator
from support.problems import problem

#: One number for each of these already takes more than a small tensor may.
NUM_VERTICES = 20_000
EPOCHS = 4

CASES: dict[str, dict[str, Any]] = {
    "p2p": {"algorithm": "p2p", "dropout": 0.3, "weight_decay": 1e-3},
    "broadcast": {"algorithm": "broadcast"},
    "summa": {"algorithm": "summa"},
    "tensor3d": {"algorithm": "tensor3d"},
    "transform-first": {"algorithm": "p2p", "product_order": "transform-first", "cache_input_product": False},
    "bf16": {"algorithm": "p2p", "precision": "bf16", "dropout": 0.3},
    "bf16-summa": {"algorithm": "summa", "precision": "bf16"},
    "sage": {"algorithm": "p2p", "model": "sage", "dropout": 0.3},
    "gin": {"algorithm": "p2p", "model": "gin"},
    "residual": {"algorithm": "p2p", "hidden": (8, 8, 8), "residual": True, "dropout": 0.3},
    "class-weights": {"algorithm": "p2p", "class_weights": "balanced", "optimizer": "sgd"},
}


class Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lists torch operations whose results are large and neither in the workspace nor in memory that was there."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._workspace = workspace
        self.found: list[str] = []

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        known = {tensor.untyped_storage().data_ptr() for tensor in _tensors((*args, *(kwargs or {}).values()))}
        for tensor in _tensors((result,)):
            storage = tensor.untyped_storage()
            is_new = storage.data_ptr() not in known and not self._workspace.holds(tensor)
            # The workspace makes its tensors from arrays, which torch does not see; the operations see them.
            if is_new and storage.nbytes() > SMALL:
                self.found.append(f"{function}: {tuple(tensor.shape)}, {tensor.dtype}")
        return result


def _tensors(values: object) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, tuple | list):
        for value in values:
            yield from _tensors(value)


@contextmanager
def _array_peak() -> Iterator[list[int]]:
    """Bytes that Python and NumPy had allocated at the worst moment of the block, above those at its start."""
    tracemalloc.start()
    before, peak = tracemalloc.get_traced_memory()[0], [0]
    yield peak
    peak[0] = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("allocations") / "catalog")
    large = problem("rows", NUM_VERTICES, 2 * NUM_VERTICES, symmetric=True)
    large.store(catalog, 1)
    replace(large, name="grid").store_grid(catalog, "double", grid=(2, 2))
    return catalog


@pytest.mark.parametrize("case", CASES)
def test_an_epoch_allocates_nothing_large_after_the_first(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    epoch, found, arrays, sizes = Training._train_epoch, list[str](), list[int](), list[int]()

    def watched(training: Training, number: int, stop: Callable[[], bool]) -> EpochReport:
        workspace = training.session.operator.workspace
        # Alternating, since watching the tensors allocates for the watching itself.
        if number == EPOCHS - 2:
            with Allocations(workspace) as allocations:
                report = epoch(training, number, stop)
            found.extend(allocations.found)
        elif number == EPOCHS - 1:
            with _array_peak() as peak:
                report = epoch(training, number, stop)
            arrays.append(peak[0])
        else:
            report = epoch(training, number, stop)
        sizes.append(workspace.nbytes)
        return report

    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setattr(Training, "_train_epoch", watched)
    train(LoneCommunicator(), _config(catalog, case))
    assert found == []
    # All Python objects of an epoch together, tens of kilobytes, and no array.
    assert arrays[0] < NUM_VERTICES * 8
    assert len(set(sizes[1:])) == 1, "the workspace grows after the second epoch"
    assert sizes[0] > NUM_VERTICES * 8 * np.dtype(np.float32).itemsize


def _config(catalog: Catalog, case: str) -> TrainConfig:
    dataset = "rows" if CASES[case]["algorithm"] == "p2p" else "grid"
    fixed: dict[str, Any] = {"hidden": (8, 8), "epochs": EPOCHS, "eval_every": 0, "threads": 1, "ranks": 1, "run": case}
    return TrainConfig(catalog=str(catalog.root), dataset=dataset, **{**fixed, **CASES[case]})


def test_the_watch_sees_what_torch_allocates() -> None:
    workspace = Workspace()
    given = workspace.zeros((SMALL,), torch.float32)
    with Allocations(workspace) as allocations:
        torch.relu(given)
        torch.mul(given, 2, out=workspace.like(given))
        given.view(2, -1).add_(1)
    assert len(allocations.found) == 1
    assert "relu" in allocations.found[0]
