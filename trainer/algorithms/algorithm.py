"""The descriptor of a distributed algorithm, and the context in which its operator is built."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option
from gnnloom.storage.wording import counted
from gnnloom.trainer.algorithms.steps import Step
from gnnloom.trainer.algorithms.workload import Footprint, Workload
from gnnloom.trainer.data.open_shards import OpenedShards, ShardKind, SharedGridShards

if TYPE_CHECKING:
    from gnnloom.storage.format.arrays import ReadCounter
    from gnnloom.trainer.comm.communicator import Communicator
    from gnnloom.trainer.comm.process_grid import ProcessGrid
    from gnnloom.trainer.operators.grid import GridOperator
    from gnnloom.trainer.operators.grid_adjacency import GridAdjacency
    from gnnloom.trainer.operators.operator import LayerPlan, Operator
    from gnnloom.trainer.place.place import Place

#: Capabilities beyond the two products, which every algorithm has, in the words of messages about algorithms that lack
#: them. A model states the capabilities that it needs. The operator fetches the individual rows of a vertex's
#: in-neighbors, not only their weighted sums.
NEIGHBORS = "fetch the rows of in-neighbors"
#: Every layer's input has the same layout, with whole rows, so a layer may multiply by two weights in a row.
ONE_LAYOUT = "keep whole rows in one layout"
#: The entries of the adjacency may stay on disk.
STREAMS = "leave the adjacency on disk"

Shards = TypeVar("Shards", bound=OpenedShards)


def factorizations(number: int, num_axes: int) -> list[tuple[int, ...]]:
    """All ways to write ``number`` as an ordered product of ``num_axes`` factors, in ascending order."""
    if num_axes == 1:
        return [(number,)]
    # Numbers of ranks are small, so trial division is fast enough.
    divisors = [first for first in range(1, number + 1) if number % first == 0]
    return [(first, *rest) for first in divisors for rest in factorizations(number // first, num_axes - 1)]


def most_square(number: int, num_axes: int) -> tuple[int, ...]:
    """The factorization of ``number`` whose factors differ least, largest factor first."""
    # For a fixed product, the smallest sum belongs to the most even factors.
    return max(factorizations(number, num_axes), key=lambda factors: (-sum(factors), factors))


@dataclass(frozen=True)
class OperatorContext(Generic[Shards]):
    """Everything that an algorithm may use to build its operator on one rank.

    Attributes:
        comm: all ranks of the run.
        axes: axis of the process grid to its number of ranks, in the order of ``Algorithm.axes``.
        shards: this rank's shards, opened.
        normalization: normalization of the adjacency; see :mod:`gnnloom.trainer.data.adjacency_scaling`.
        place: place of the operator's results and of rows on their way between ranks.
        plan: widths and product orders of the model's layers.
        differentiates: gradients go back through the products with the adjacency, so its transpose is needed.
        counter: counts the bytes that this rank reads.
        options: the algorithm's own options by name, checked.
    """

    comm: Communicator
    axes: Mapping[str, int]
    shards: Shards
    normalization: str
    place: Place
    plan: LayerPlan
    differentiates: bool
    counter: ReadCounter
    options: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Algorithm(Generic[Shards]):
    """A distributed algorithm: its options and the function that builds its operator.

    The module that holds it must not import torch or MPI, except inside ``build``. Its docstring states the
    number of words that an epoch sends, after the paper.

    Attributes:
        name: as given with ``--algorithm``.
        order: position among the choices; algorithms of equal order are sorted by name.
        help: one line of help text.
        source: paper and section.
        axes: axes of the process grid, in the order of ``--grid``.
        reads: the kind of shards that a rank reads.
        build: builds the operator of one rank. It reads this rank's adjacency and communicates nothing.
        capabilities: abilities of the operator beyond the two products, such as :data:`NEIGHBORS`.
        lacks: for some of the algorithm's options, the values for which its operator lacks some capabilities.
        options: the algorithm's own options by name. Names are unique among all algorithms and fields of TrainConfig;
            algorithms that share a name share the option. ``gnnloom train --help`` shows them as ``--name``.
        footprint: a rank's share of every layer and of the output, from the ranks along each axis and the order of
            each layer's products (see :class:`gnnloom.trainer.operators.operator.LayerPlan`). None if unknown, or
            exactly known from row shards.
        steps: messages and products of an epoch, roughly in order, from the workload, the
            ranks along each axis and the algorithm's own options. None if unknown: the planner then leaves the
            algorithm out.
    """

    name: str
    order: int
    help: str
    source: str
    axes: tuple[str, ...]
    reads: ShardKind[Shards]
    build: Callable[[OperatorContext[Shards]], Operator]
    capabilities: frozenset[str] = frozenset()
    lacks: Mapping[str, Mapping[Any, frozenset[str]]] = field(default_factory=dict)
    options: Mapping[str, Option] = field(default_factory=dict)
    footprint: Callable[[Mapping[str, int], Sequence[bool]], list[Footprint]] | None = None
    steps: Callable[[Workload, Mapping[str, int], Mapping[str, Any]], list[Step]] | None = None

    def settled_grid(self, grid: tuple[int, ...] | None, num_ranks: int) -> dict[str, int]:
        """Axes and the ranks along them; without a ``grid``, the grid whose axes differ least.

        Raises:
            InputError: the grid does not fit the algorithm or the number of ranks; the message lists grids that fit.
        """
        if grid is None:
            grid = most_square(num_ranks, len(self.axes))
        if len(grid) != len(self.axes) or min(grid) < 1 or math.prod(grid) != num_ranks:
            possible = ", ".join("x".join(map(str, sizes)) for sizes in factorizations(num_ranks, len(self.axes)))
            raise InputError(
                f"grid {'x'.join(map(str, grid))}: algorithm {self.name} on {counted(num_ranks, 'rank')} needs sizes"
                f" for the axes {', '.join(self.axes)}: one of {possible}"
            )
        return dict(zip(self.axes, grid, strict=True))


def build_on_grid(
    context: OperatorContext[SharedGridShards], build: Callable[[ProcessGrid, GridAdjacency], GridOperator]
) -> GridOperator:
    """Build an operator from the process grid and the adjacency that it reads. Communicates nothing."""
    from gnnloom.trainer.comm.process_grid import ProcessGrid  # noqa: PLC0415 - imports MPI
    from gnnloom.trainer.operators.grid_adjacency import GridAdjacency  # noqa: PLC0415 - imports torch

    grid = ProcessGrid(context.comm, context.axes, context.place)
    adjacency = GridAdjacency(context.shards.shards, context.normalization, context.place, context.counter)
    operator = build(grid, adjacency)
    # From here on, only the operator holds the blocks, so each block is freed when the operator releases it.
    adjacency.forget()
    return operator
