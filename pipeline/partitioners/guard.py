"""What is checked before native code sees a hypergraph, and what it returned before anybody trusts it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.hypergraph import Hypergraph
from gnnloom.storage.errors import BudgetError, InputError, PartitionerError

#: Native partitioners count weights, vertices and pins with 32 bits.
NATIVE_LIMIT = (1 << 31) - 1


def check_parts(parts: int, num_vertices: int) -> None:
    """Raise InputError unless ``num_vertices`` vertices can be split into ``parts`` parts that are not empty."""
    if parts < 1:
        raise InputError(f"parts={parts}: expected 1 or more")
    if parts > num_vertices:
        raise InputError(f"parts={parts}: the graph has {num_vertices:,} vertices; ask for no more parts than that")


def check_hypergraph(hypergraph: Hypergraph) -> None:
    """Check what native code would answer with a crash, a wrong result or silence.

    Raises:
        InputError: lengths, offsets, pins or weights do not fit together.
        BudgetError: there are more pins or vertices than 32 bits count.
    """
    offset, pin, weight = hypergraph.net_offset, hypergraph.pin, hypergraph.vertex_weight
    if len(offset) < 1 or offset[0] != 0 or offset[-1] != len(pin):
        raise InputError(f"hypergraph: net_offset does not run from 0 to the number of pins ({len(pin):,})")
    if len(offset) > 1 and int(np.diff(offset).min()) < 2:
        raise InputError("hypergraph: a net has fewer than two pins; leave such nets out")
    if len(pin) and not 0 <= int(pin.min()) <= int(pin.max()) < len(weight):
        raise InputError(f"hypergraph: pins from {pin.min()} to {pin.max()}, expected 0..{len(weight) - 1}")
    if len(weight) and int(weight.min()) < 1:
        raise InputError(f"hypergraph: a vertex weighs {weight.min()}, expected 1 or more")
    if max(len(pin), len(weight)) > NATIVE_LIMIT:
        raise BudgetError(
            f"hypergraph: {len(pin):,} pins and {len(weight):,} vertices, more than native partitioners count"
            f" ({NATIVE_LIMIT:,}); use method random or block"
        )


def native_weights(weight: NDArray[np.int64], limit: int = NATIVE_LIMIT) -> NDArray[np.int64]:
    """Vertex weights whose sum is at most ``limit``: divided by one factor where it is not, and never below 1.

    Args:
        weight: (num_vertices,) int64, at least 1.
    """
    total = int(weight.sum())
    if total <= limit:
        return weight
    spare = limit - len(weight)
    if spare < 1:
        raise BudgetError(f"hypergraph: {len(weight):,} vertices, more than weights with a sum of {limit:,} allow")
    factor = -(-total // spare)
    return 1 + (weight - 1) // factor


def check_part(part: NDArray[np.int64], num_vertices: int, parts: int, source: Path) -> None:
    """Raise PartitionerError unless ``part`` has a part from 0..parts-1 for every vertex."""
    if part.shape != (num_vertices,) or part.dtype.kind not in "iu":
        raise PartitionerError(
            f"{source}: expected {num_vertices:,} parts as integers, found {part.dtype} of shape {part.shape}"
        )
    if len(part) and not 0 <= int(part.min()) <= int(part.max()) < parts:
        raise PartitionerError(f"{source}: parts from {part.min()} to {part.max()}, expected 0..{parts - 1}")


def fill_empty_parts(part: NDArray[np.int32], weight: NDArray[np.int64], parts: int) -> int:
    """Give every empty part the lightest vertex that is not alone in its part; changes ``part`` in place.

    Args:
        part: (num_vertices,) int32; num_vertices is at least ``parts``.
        weight: (num_vertices,) int64.

    Returns:
        The number of vertices moved.
    """
    size = np.bincount(part, minlength=parts)
    empty = np.flatnonzero(size == 0)
    if not len(empty):
        return 0
    moved = 0
    for vertex in np.argsort(weight, kind="stable"):
        if moved == len(empty):
            break
        if size[part[vertex]] > 1:
            size[part[vertex]] -= 1
            part[vertex] = empty[moved]
            size[empty[moved]] = 1
            moved += 1
    return moved
