"""Every row of a model's output has one owner on every layout; rows of pairs arrive, and their gradients go back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gnnloom.storage import Catalog
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.trainer.algorithms.algorithm import OperatorContext
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.data.open_shards import OwnRowShard, SharedGridShards
from gnnloom.trainer.links.pair_rows import GridOwners, PairRows, taken_ends, taken_rows
from gnnloom.trainer.operators.grid_targets import AllPositions
from gnnloom.trainer.operators.operator import LayerPlan, Operator
from gnnloom.trainer.place.place import Place
from support.covering import few_of
from support.problems import Problem, problem
from support.thread_ranks import on_thread_ranks
from support.tolerance import assert_close

GIVEN = problem("graph", 23, 70, symmetric=False)
#: Fewer vertices than ranks, so some ranks own none.
TINY = problem("tiny", 5, 9, symmetric=False)
ON_GRIDS = [
    ("broadcast", (1,)),
    ("broadcast", (3,)),
    ("replicated", (2, 2)),
    ("summa", (2, 2)),
    ("summa", (1, 3)),
    ("summa", (3, 2)),
    ("split3d", (1, 2, 2)),
    ("split3d", (2, 2, 2)),
    ("tensor3d", (1, 1, 4)),
    ("tensor3d", (1, 2, 2)),
    ("tensor3d", (2, 1, 2)),
    ("tensor3d", (2, 2, 1)),
    ("tensor3d", (2, 2, 2)),
    ("tensor3d", (3, 1, 2)),
]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("catalog"))
    for given in (GIVEN, TINY):
        given.store(catalog, 1, 2, 3, 4)
        given.store_grid(catalog, "double", "none", "partition", grid=(2, 2))
    return catalog


@dataclass(frozen=True)
class Found:
    """What one rank found."""

    vertex: np.ndarray
    owners: np.ndarray
    rows: np.ndarray
    ends: list[np.ndarray]
    gradient: np.ndarray
    piece: tuple[np.ndarray, slice]


def whole(given: Problem, dim: int) -> Tensor:
    """The model's output."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(len(given.label), dim, generator=generator, dtype=torch.float64)


def pairs_of(given: Problem, rank: int) -> np.ndarray:
    """Pairs that a rank computes on, some of them several times; rank 1 has none."""
    pairs = np.random.default_rng([rank, 2]).integers(0, len(given.label), (0 if rank == 1 else 30, 2))
    return np.concatenate([pairs, pairs[:5]])


def loss_of(source: Tensor, target: Tensor, negative: Tensor) -> Tensor:
    """Depends on every row in another way."""
    return (source * target).sum(1).sin().sum() + (source.unsqueeze(1) * negative).sum(2).cos().sum()


def negatives_of(pairs: np.ndarray) -> np.ndarray:
    """(num_pairs, 2) targets that stand for negatives."""
    return pairs[::-1, ::-1].copy()


def on_rank(
    given: Problem, dim: int, build: Callable[[Communicator], tuple[Operator, Any]]
) -> Callable[[Communicator], Found]:
    """What a rank finds with the operator and the owners that it builds."""

    def run(comm: Communicator) -> Found:
        operator, owners = build(comm)
        layout, output = operator.layout(2), whole(given, dim)
        piece = output[layout.vertex][:, layout.columns(dim)].contiguous().requires_grad_()
        pair_rows = PairRows(layout, dim, len(output), owners, operator.align)
        rows = pair_rows.spread(piece)
        pairs = pairs_of(given, comm.rank)
        source, target, negative = pair_rows.ends(rows, pairs[:, 0], pairs[:, 1], negatives_of(pairs))
        loss_of(source, target, negative).backward()  # type: ignore[no-untyped-call]
        assert piece.grad is not None
        every = np.arange(len(output))
        return Found(
            pair_rows.vertex,
            pair_rows.owner(every),
            rows.detach().numpy(),
            [each.detach().numpy() for each in (source, target, negative)],
            piece.grad.numpy(),
            (layout.vertex, layout.columns(dim)),
        )

    return run


def check(given: Problem, dim: int, found: list[Found]) -> None:
    """Compare with the whole matrix in one process."""
    output = whole(given, dim).requires_grad_()
    loss = torch.zeros((), dtype=torch.float64)
    for rank, each in enumerate(found):
        assert np.array_equal(each.rows, output.detach()[each.vertex])
        assert np.array_equal(each.owners, found[0].owners)
        assert np.array_equal(np.sort(each.vertex), np.flatnonzero(each.owners == rank))
        pairs = pairs_of(given, rank)
        ends = [output[pairs[:, 0]], output[pairs[:, 1]], output[negatives_of(pairs)]]
        for mine, end in zip(each.ends, ends, strict=True):
            assert np.array_equal(mine, end.detach())
        loss = loss + loss_of(*ends)
    loss.backward()  # type: ignore[no-untyped-call]
    assert output.grad is not None
    for each in found:
        vertex, columns = each.piece
        # Also on ranks that hold copies, and on those whose columns other ranks compute with.
        assert_close(each.gradient, output.grad[vertex][:, columns].numpy())


def operator_on(comm: Communicator, algorithm: str, axes: dict[str, int], shards: Any) -> Any:
    """The operator of a model with two layers."""
    kind, plan = ALGORITHMS[algorithm], LayerPlan((5, 7, 6), (True, False))
    options = {name: option.default for name, option in kind.options.items()}
    place = Place(torch.float64)
    return kind.build(OperatorContext(comm, axes, shards, "symmetric", place, plan, True, ReadCounter(), options))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("given", [GIVEN, TINY], ids=lambda given: given.name)
def test_rows_of_row_shards_stay_where_they_are(catalog: Catalog, given: Problem, ranks: int) -> None:
    dataset = catalog.dataset(given.name)
    part = given.part(ranks).astype(np.int32)

    def build(comm: Communicator) -> tuple[Operator, Any]:
        shard = dataset.row_shards(parts=ranks).shard(comm.rank, ReadCounter())
        operator = operator_on(comm, "p2p", {"row": ranks}, OwnRowShard(shard))
        rows = torch.zeros(len(operator.layout(2).vertex), 3)
        assert PairRows(operator.layout(2), 3, len(part), part, operator.align).spread(rows) is rows
        return operator, part if ranks > 1 else None

    check(given, 3, on_thread_ranks(ranks, on_rank(given, 3, build)))


#: Names of problems, and the widths of their outputs.
GIVEN_TO_GRIDS = {"graph": (GIVEN, 5), "tiny": (TINY, 1)}


@pytest.mark.parametrize(
    ("where", "permutation", "name"), few_of(ON_GRIDS, ("double", "none", "partition"), GIVEN_TO_GRIDS, together=2)
)
def test_rows_of_grids_are_spread_over_all_ranks(
    catalog: Catalog, where: tuple[str, tuple[int, ...]], permutation: str, name: str
) -> None:
    (algorithm, grid), (given, dim) = where, GIVEN_TO_GRIDS[name]
    dataset, ranks = catalog.dataset(given.name), int(np.prod(grid))

    def build(comm: Communicator) -> tuple[Operator, Any]:
        opened = SharedGridShards(dataset.grid_shards(None, permutation=permutation), ReadCounter())
        operator = operator_on(comm, algorithm, ALGORITHMS[algorithm].settled_grid(grid, ranks), opened)
        orders = AllPositions(comm, operator.adjacency, operator.grid.place)
        return operator, GridOwners(operator.layout(2), orders)

    check(given, dim, on_thread_ranks(ranks, on_rank(given, dim, build)))


def test_rows_of_both_ends_have_the_gradient_that_autograd_adds_up() -> None:
    rng, place = np.random.default_rng(2), Place(torch.float32)
    source, target = rng.integers(0, 30, (2, 400))
    weight = torch.from_numpy(rng.standard_normal((2, 400, 5)).astype(np.float32))
    gradients = []
    for take in (
        lambda rows: taken_ends(rows, source, target, place),
        lambda rows: [taken_rows(rows, each, place) for each in (source, target)],
    ):
        rows = torch.ones(30, 5, requires_grad=True)
        found = take(rows * torch.arange(30.0)[:, None])
        sum((each * factor).sum() for each, factor in zip(found, weight, strict=True)).backward()
        gradients.append((rows.grad, *found))
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)
