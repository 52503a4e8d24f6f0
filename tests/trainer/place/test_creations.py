"""Every tensor is made by a place: of all algorithms and models, in training steps, evaluation, metrics and loss."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import gnnloom.trainer
from gnnloom.storage import Catalog
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.modes.registry import MODES
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.rehearsal.rank_memory import rehearse
from support.covering import few_of
from support.lone import LoneCommunicator
from support.lone_training import opened_run
from support.problems import problem

TRAINER = Path(gnnloom.trainer.__file__).parent
#: Makes a tensor from nothing, or of a size of its own.
CREATORS = {"arange", "as_tensor", "empty", "empty_like", "empty_strided", "eye", "from_numpy", "full", "full_like"}
CREATORS |= {"linspace", "ones", "ones_like", "rand", "randint", "randn", "randperm", "scalar_tensor", "tensor"}
CREATORS |= {"zeros", "zeros_like", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros"}
#: Only these rooms know what a device is.
ROOMS = ("gnnloom.trainer.place", "gnnloom.trainer.kernels", "gnnloom.trainer.comm")
#: Turn a tensor into an array, or an array into a tensor, wherever the tensors of the place are.
CONVERSIONS = {"as_array", "as_tensor", "from_dlpack", "from_numpy", "numpy", "tensor_over", "__array__"}
#: Most files of other rooms that turn tensors into arrays. They may become fewer.
MOST_TO_ARRAYS, MOST_CONVERTING = 8, 29
#: How a place is called, or made.
PLACES = ("place", "place()")
#: The first two run on every grid.
MODELS = ("gcn", "sage", "gin", "gat")
GRIDS = {
    "p2p": None,
    "broadcast": None,
    "replicated": (2, 2),
    "summa": (2, 2),
    "split3d": (1, 2, 2),
    "tensor3d": (1, 2, 2),
}


class Creations(TorchFunctionMode):
    """Lists the lines of the trainer, outside of these rooms, that make tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0
        self.found: set[str] = set()

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if getattr(function, "__name__", "") in CREATORS:
            self.note()
        return function(*args, **(kwargs or {}))

    def note(self) -> None:
        """Note the line of gnnloom that is making a tensor."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not frame.f_globals["__name__"].startswith("gnnloom."):
            frame = frame.f_back
        if frame is None:
            return
        self.made += 1
        if not frame.f_globals["__name__"].startswith(ROOMS):
            self.found.add(f"{frame.f_globals['__name__']}:{frame.f_lineno}")


@contextmanager
def creations() -> Iterator[Creations]:
    """Watch what makes tensors inside the block, also from arrays, which torch does not announce."""
    from_numpy, watched = torch.from_numpy, Creations()

    def noted(array: Any) -> Tensor:
        watched.note()
        return from_numpy(array)

    with pytest.MonkeyPatch.context() as patch, watched:
        patch.setattr(torch, "from_numpy", noted)
        yield watched


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("catalog"))
    given = problem("graph", 60, 240, symmetric=False)
    for parts in (1, 4):
        given.store(catalog, parts)
    given.store_grid(catalog, "double", grid=(4, 4))
    return catalog


def config(catalog: Catalog, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {"hidden": (8, 8), "epochs": 2, "dropout": 0.5, "residual": True, "norm": "batch"}
    return TrainConfig.of(catalog=str(catalog.root), dataset="graph", **{**fixed, **options})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "model"),
    [*(("p2p", model) for model in MODELS), *few_of([name for name in GRIDS if name != "p2p"], MODELS[:2], together=1)],
)
def test_ranks_of_every_grid_make_tensors_at_their_place(catalog: Catalog, algorithm: str, model: str) -> None:
    """Ranks are rehearsed one at a time, forward, backward and with their updates, without messages."""
    options = {"ranks": 4, "grid": GRIDS[algorithm], "clip_norm": 1.0, "class_weights": "balanced"}
    with creations() as watched:
        _rehearse(config(catalog, algorithm=algorithm, model=model, **options))
    assert watched.made > 50
    assert watched.found == set()


def _rehearse(given: TrainConfig) -> None:
    opened = opened_run(given)
    # Of every grid, a rank that is first in all its groups and one that is last.
    for rank in (0, given.algorithm.ranks - 1):
        assert rehearse(opened, rank) is not None


@pytest.mark.parametrize("mode", [mode for mode in MODES if MODES[mode].is_sampled and not MODES[mode].reads_rows])
def test_batches_that_are_rehearsed_have_tensors_at_their_place(catalog: Catalog, mode: str) -> None:
    with creations() as watched:
        _rehearse(config(catalog, ranks=4, mode=mode, batch_size=20, residual=False))
    assert watched.made > 50
    assert watched.found == set()


@pytest.mark.parametrize(("model", "precision"), few_of(MODELS, ("float32", "bf16"), together=1))
def test_a_training_makes_tensors_at_its_place(catalog: Catalog, model: str, precision: str) -> None:
    with creations() as watched:
        train(LoneCommunicator(), config(catalog, run=f"{model}-{precision}", model=model, precision=precision))
    assert watched.made > 50
    assert watched.found == set()


def calls() -> Iterator[tuple[Path, str, str, int]]:
    """Calls outside of these rooms: the file, the name that is called, of what (empty for a function), and the line."""
    for path in TRAINER.rglob("*.py"):
        inside = path.relative_to(TRAINER)
        if inside.parts[0] in {room.rpartition(".")[2] for room in ROOMS}:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield inside, node.func.attr, ast.unparse(node.func.value), node.lineno
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield inside, node.func.id, "", node.lineno


def test_no_line_of_other_rooms_calls_what_makes_tensors() -> None:
    """Nor do lines that the trainings above do not reach."""
    found = {
        f"{path}:{line}"
        for path, name, of, line in calls()
        if name in CREATORS and (of == "torch" or name.startswith("new_"))
    }
    assert found == set()


def test_other_rooms_ask_a_place_for_arrays_of_tensors() -> None:
    """A place knows where tensors are; storage, and what is computed from numbers of vertices, need arrays."""
    found = list(calls())
    alone = {str(path) for path, name, of, _ in found if name in CONVERSIONS and not of.lower().endswith(PLACES)}
    assert alone == set()
    to_arrays = {path for path, name, _, _ in found if name in {"to_numpy", "as_array"}}
    assert len(to_arrays) <= MOST_TO_ARRAYS
    assert len(to_arrays | {path for path, name, _, _ in found if name in CONVERSIONS}) <= MOST_CONVERTING
