"""Operators need the Communicator protocol only: a transport written without MPI runs their products."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnloom.storage import Catalog, ReadCounter
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.mpi import MpiCommunicator, world
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.operators.grid import GridOperator
from gnnloom.trainer.operators.grid_adjacency import GridAdjacency
from gnnloom.trainer.operators.operator import LayerPlan, Operator
from gnnloom.trainer.operators.p2p import PointToPoint
from gnnloom.trainer.operators.row_blocks import RowBlocks
from gnnloom.trainer.operators.summa import Summa
from gnnloom.trainer.operators.tensor3d import Tensor3D
from gnnloom.trainer.place.place import Place
from support.dense import normalized
from support.gradients import backward
from support.lone import LoneCommunicator
from support.problems import Problem, problem

PLAN = LayerPlan(dims=(5, 3), propagates_first=(True,), input_needs_gradient=True)
GRIDS = {RowBlocks: ("row",), Summa: ("row", "column"), Tensor3D: ("x", "y", "z")}


def conforming() -> tuple[Communicator, Communicator]:
    """Both transports; the type checker compares them with the protocol."""
    lone: Communicator = LoneCommunicator()
    mpi: Communicator = world()
    return lone, mpi


def test_both_transports_have_every_method_of_the_protocol() -> None:
    lone, mpi = conforming()
    names = {name for name in vars(Communicator) if not name.startswith("_")}
    assert isinstance(mpi, MpiCommunicator)
    assert [name for name in sorted(names) for comm in (lone, mpi) if not hasattr(comm, name)] == []


@pytest.fixture(scope="module")
def given() -> Problem:
    return problem("directed", 30, 120, symmetric=False)


def check_product(operator: Operator, given: Problem) -> None:
    """The product with the normalized adjacency, and its adjoint, against dense ones; rows may be permuted."""
    dense = torch.from_numpy(normalized(given.adjacency.toarray(), "symmetric"))
    source, target = (layout.vertex for layout in operator.product_layouts(0))
    features = torch.randn(30, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    gradient = torch.randn(30, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = operator.propagate(features, 0)
    backward(found, gradient)
    block = dense[target][:, source]
    tolerance = 30 * 5 * float(np.finfo(np.float64).eps)
    torch.testing.assert_close(found.detach(), block @ features.detach(), rtol=0, atol=tolerance)
    assert features.grad is not None
    torch.testing.assert_close(features.grad, block.T @ gradient, rtol=0, atol=tolerance)


@pytest.mark.slow
def test_a_product_over_row_shards_runs_without_mpi(given: Problem, tmp_path: Path) -> None:
    shard = given.store(Catalog(tmp_path), 1).row_shards(parts=1).shard(0)
    check_product(PointToPoint(LoneCommunicator(), shard, "symmetric", Place(torch.float64)), given)


@pytest.mark.parametrize("kind", GRIDS)
def test_a_product_over_grid_shards_runs_without_mpi(kind: type[GridOperator], given: Problem, tmp_path: Path) -> None:
    shards = given.store_grid(Catalog(tmp_path), "double", grid=(3, 2)).grid_shards()
    grid = ProcessGrid(LoneCommunicator(), dict.fromkeys(GRIDS[kind], 1), Place(torch.float64))
    adjacency = GridAdjacency(shards, "symmetric", grid.place, ReadCounter())
    check_product(kind(grid, adjacency, PLAN), given)  # type: ignore[call-arg]


@pytest.mark.slow
def test_operators_layouts_and_models_load_without_mpi() -> None:
    rooms = ("operators.p2p", "operators.summa", "operators.tensor3d", "layout.vertex_arrays", "models.gat")
    imports = "; ".join(f"import gnnloom.trainer.{room}" for room in rooms)
    program = f"import sys; {imports}; print('mpi4py' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
