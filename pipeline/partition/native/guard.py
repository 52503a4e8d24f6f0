"""Checks of a problem and of memory before native code runs, and of a result before it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.adjacency_graph import AdjacencyGraph
from gnnloom.pipeline.partition.model.hypergraph import Hypergraph
from gnnloom.pipeline.partition.native.program import NATIVE_LIMIT
from gnnloom.storage.errors import BudgetError, InputError, PartitionerError
from gnnloom.storage.machine_memory import available_memory, memory_text

#: Advice if a program does not fit.
OTHER_METHODS = "use method multilevel, random or block, or more memory"


def check_problem(problem: Hypergraph | AdjacencyGraph, limit: int = NATIVE_LIMIT) -> None:
    """Refuse input on which native code would crash, hang or return a wrong result.

    Args:
        limit: the highest number that the program counts to.

    Raises:
        InputError: lengths, offsets, pins, neighbors or weights do not fit together.
        BudgetError: there are more pins, neighbors or vertices than the program can count.
    """
    if isinstance(problem, Hypergraph):
        _check_hypergraph(problem)
    else:
        _check_graph(problem)
    if int(problem.vertex_weight.min(initial=1)) < 1:
        raise InputError(f"a vertex has weight {problem.vertex_weight.min()}, expected 1 or more")
    # Last, so that wrong input is reported as such even if it is also too large.
    if max(problem.size, problem.num_vertices) > limit:
        raise BudgetError(
            f"{problem.size:,} pins or neighbors and {problem.num_vertices:,} vertices: this partitioner counts to"
            f" {limit:,}; use method multilevel, random or block, or kaminpar for the graph model"
        )


def _check_hypergraph(hypergraph: Hypergraph) -> None:
    offset, pin, weight = hypergraph.net_offset, hypergraph.pin, hypergraph.net_weight
    if len(offset) < 1 or offset[0] != 0 or offset[-1] != len(pin):
        raise InputError(f"hypergraph: net_offset does not run from 0 to the number of pins ({len(pin):,})")
    if len(offset) > 1 and int(np.diff(offset).min()) < 2:
        raise InputError("hypergraph: a net has fewer than two pins; leave such nets out")
    _check_ids("hypergraph: pins", pin, hypergraph.num_vertices)
    if weight is None:
        return
    if len(weight) != hypergraph.num_nets or int(weight.min(initial=1)) < 1:
        raise InputError(f"hypergraph: expected a weight of 1 or more for each of {hypergraph.num_nets:,} nets")
    # A cut is a sum of net weights, which native code keeps in 32 bits.
    if int(weight.sum()) > NATIVE_LIMIT:
        raise BudgetError(
            f"hypergraph: net weights sum to {int(weight.sum()):,}, more than {NATIVE_LIMIT:,}; scale them"
        )


def _check_graph(graph: AdjacencyGraph) -> None:
    offset, neighbor = graph.offset, graph.neighbor
    monotone = len(offset) == graph.num_vertices + 1 and int(np.diff(offset).min(initial=0)) >= 0
    if not monotone or offset[0] != 0 or offset[-1] != len(neighbor) or len(graph.edge_weight) != len(neighbor):
        raise InputError(f"graph: offsets or edge weights do not fit {len(neighbor):,} neighbors")
    _check_ids("graph: neighbors", neighbor, graph.num_vertices)
    if int(graph.edge_weight.min(initial=1)) < 1:
        raise InputError(f"graph: an edge has weight {graph.edge_weight.min()}, expected 1 or more")


def _check_ids(what: str, ids: NDArray[Any], num_vertices: int) -> None:
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < num_vertices:
        raise InputError(f"{what} from {ids.min()} to {ids.max()}, expected 0..{num_vertices - 1}")


def native_weights(weight: NDArray[np.int64], limit: int = NATIVE_LIMIT) -> NDArray[np.int64]:
    """Vertex weights scaled down by one factor if their sum exceeds ``limit``, and never below 1.

    Args:
        weight: (num_vertices,) int64, at least 1.

    Returns:
        (num_vertices,) int64 with a sum of at most ``limit``.

    Raises:
        BudgetError: the number of vertices is about the limit, so no factor suffices.
    """
    total = int(weight.sum())
    if total <= limit:
        return weight
    spare = limit - len(weight)
    if spare < 1:
        raise BudgetError(
            f"hypergraph: {len(weight):,} vertices of weight 1 or more exceed the largest sum of weights, {limit:,};"
            " use method multilevel, random or block"
        )
    # Rounding up may add 1 to each weight, which the spare leaves room for.
    factor = -(-total // spare)
    return 1 + (weight - 1) // factor


def check_part(part: NDArray[Any], num_vertices: int, parts: int, source: Path | str) -> None:
    """Raise PartitionerError unless ``part`` holds a part in 0..parts-1 for every vertex.

    Args:
        part: any array.
        source: file or method that it comes from, for the message.
    """
    if part.shape != (num_vertices,) or part.dtype.kind not in "iu":
        raise PartitionerError(
            f"{source}: expected {num_vertices:,} parts as integers, found {part.dtype} of shape {part.shape}"
        )
    if len(part) and not 0 <= int(part.min()) <= int(part.max()) < parts:
        raise PartitionerError(f"{source}: parts from {part.min()} to {part.max()}, expected 0..{parts - 1}")


def check_memory(what: str, needed: int, limit: int | None, way_out: str) -> None:
    """Raise BudgetError if ``what`` needs more bytes than are allowed.

    Args:
        what: beginning of the message, such as the method and the size of its problem.
        limit: bytes allowed; None for what the machine has.
        way_out: end of the message: what to do.
    """
    available = available_memory() if limit is None else limit
    if needed > available:
        raise BudgetError(
            f"{what}: needs about {memory_text(needed)} of memory, but only {memory_text(available)} are available;"
            f" {way_out}"
        )
