"""The kernels of cover refinement: matchings between parts, and their changes when a vertex moves.

Between two parts, the least number of rows and sums is the size of a maximum matching of the nonzeros there (Koenig,
1931). All these matchings are kept at once: the mates of a node are the nodes that it is matched with, at most one in
each other part. If a vertex leaves a part, each of its mates may find another mate along an alternating path, or the
matching loses an edge. If the vertex joins a part, it may find a mate in each other part, or the matching stays.

A node is a row of the matrix, or a column; of a symmetric matrix, a vertex has one node that is both.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.moves import accepts_move
from gnnloom.storage.kernels import kernel

#: Entries that the search for an alternating path may look at, so that a move costs a bounded time.
PATH_ENTRIES: Final = 256
#: Parts that a vertex tries: those with most of its neighbors.
_TRIED: Final = 3
_NO_LIMIT: Final = 1 << 62


class Matchings(NamedTuple):
    """Matchings between all pairs of parts.

    Attributes:
        offset: (num_nodes + 1,) int64; node i has the neighbors offset[i]..offset[i+1], without its own vertex.
        neighbor: (num_entries,) nodes.
        part: (num_nodes,) int32 part of each node.
        mate: (num_entries,) nodes; node i has its mates from offset[i] on, in no order.
        mate_part: (num_entries,) int32 part of each mate, fixed while it is a mate.
        num_mates: (num_nodes,) int32.
        seen: (num_nodes,) int64 number of the last search that reached each node.
        parent: (num_nodes,) node from which that search came.
        stack: (num_nodes,) nodes from which a search still has to go on.
        changes: (num_changes, 3) int64 node, mate before, and mate after; -1 for none. What a tried move has changed.
        counter: (2,) int64 number of the last search, and number of changes.
    """

    offset: NDArray[np.int64]
    neighbor: NDArray[Any]
    part: NDArray[np.int32]
    mate: NDArray[Any]
    mate_part: NDArray[np.int32]
    num_mates: NDArray[np.int32]
    seen: NDArray[np.int64]
    parent: NDArray[Any]
    stack: NDArray[Any]
    changes: NDArray[np.int64]
    counter: NDArray[np.int64]


class Around(NamedTuple):
    """The neighbors of one node, grouped by their parts.

    Attributes:
        node: (most neighbors of a node,) nodes, part by part.
        parts: (num_parts,) int64 the parts of the neighbors.
        start: (num_parts + 1,) int64 the first neighbor in ``node`` by part; undefined for other parts.
        size: (num_parts,) int64 neighbors by part; zero between two uses.
        lost: (num_parts,) int64 former mates of the node.
    """

    node: NDArray[Any]
    parts: NDArray[np.int64]
    start: NDArray[np.int64]
    size: NDArray[np.int64]
    lost: NDArray[np.int64]


@kernel
def match_all(state: Matchings, by_part: NDArray[np.int64], is_symmetric: bool, around: Around) -> int:
    """Make all matchings maximum; returns the number of matched pairs.

    Args:
        by_part: (num_vertices,) int64 vertices in the order of their parts; their nodes are rows.
    """
    grows = True
    while grows:
        grows = False
        last = -1
        for node in by_part:
            own = state.part[node]
            # One number for all searches from a part: nodes that one search could not use are useless to the next.
            if own != last:
                state.counter[0] += 1
                last = own
            for index in range(_group(state, node, around)):
                part = around.parts[index]
                # Of a symmetric matrix, a pair of parts is matched from one side.
                is_other = part > own if is_symmetric else part != own
                if is_other and _mate_in(state, node, part) < 0 and _search(state, node, part, around, _NO_LIMIT):
                    grows = True
                state.counter[1] = 0
            _clear(around)
    total = 0
    for node in range(len(by_part)):
        total += state.num_mates[node]
    return total // 2 if is_symmetric else total


@kernel
def move_vertices(
    state: Matchings,
    order: NDArray[np.int64],
    weight: NDArray[np.int64],
    load: NDArray[np.int64],
    size: NDArray[np.int64],
    limit: int,
    heat: float,
    key: np.uint64,
    around: tuple[Around, Around],
) -> int:
    """Visit the vertices in an order, and move each to the part where the matchings lose most; returns the moves.

    Args:
        order: (num_vertices,) int64.
        weight: (num_vertices,) int64.
        load, size: (num_parts,) int64 weight and vertices of each part; changed.
        limit: weight up to which moves may fill a part.
        heat: a loss is accepted with a chance of exp(-loss / heat); 0 for never.
        key: of the random numbers of this pass.
        around: of the row and the column of a vertex.
    """
    moved, sides = 0, len(state.part) // len(order)
    near = np.zeros(len(load), np.int64)
    for vertex in order:
        source = state.part[vertex]
        if size[source] == 1:
            continue
        _count_near(state, vertex, sides, near, around)
        best = -1
        least, here, there = 0, near[source], 0
        for _ in range(_TRIED):
            target = _nearest(source, sides, near, load, limit - weight[vertex], around)
            if target < 0:
                break
            neighbors = near[target]
            near[target] = 0
            change = _move(state, vertex, sides, target, around)
            _undo(state, vertex, sides, source)
            if best < 0 or change < least or (change == least and neighbors > there):
                best, least, there = target, change, neighbors
        # Of moves that change no matching, those to more neighbors are gains: they let more neighbors follow.
        if best >= 0 and accepts_move(-least - 0.5 + (there > here), heat, key, vertex):
            _move(state, vertex, sides, best, around)
            state.counter[1] = 0
            load[source] -= weight[vertex]
            load[best] += weight[vertex]
            size[source] -= 1
            size[best] += 1
            moved += 1
        for side in range(sides):
            near[around[side].parts[: around[side].start[-1]]] = 0
            _clear(around[side])
    return moved


@kernel
def _count_near(
    state: Matchings, vertex: int, sides: int, near: NDArray[np.int64], around: tuple[Around, Around]
) -> None:
    """Group the neighbors of a vertex by part, and count them in ``near``, (num_parts,) int64 zeros."""
    n = len(state.part) // sides
    for side in range(sides):
        for index in range(_group(state, vertex + side * n, around[side])):
            part = around[side].parts[index]
            near[part] += around[side].size[part]


@kernel
def _nearest(
    source: int,
    sides: int,
    near: NDArray[np.int64],
    load: NDArray[np.int64],
    limit: int,
    around: tuple[Around, Around],
) -> int:
    """The part other than ``source`` with most neighbors, and a load of at most ``limit``; -1 if there is none."""
    nearest = -1
    for side in range(sides):
        for index in range(around[side].start[-1]):
            part = around[side].parts[index]
            if part == source or near[part] <= 0 or load[part] > limit:
                continue
            if nearest < 0 or near[part] > near[nearest] or (near[part] == near[nearest] and part < nearest):
                nearest = part
    return nearest


@kernel
def _group(state: Matchings, node: int, around: Around) -> int:
    """Group the neighbors of a node by part; returns the number of parts, which also ends ``start``."""
    found = 0
    for position in range(state.offset[node], state.offset[node + 1]):
        part = state.part[state.neighbor[position]]
        if around.size[part] == 0:
            around.parts[found] = part
            found += 1
        around.size[part] += 1
    begin = 0
    for index in range(found):
        part = around.parts[index]
        around.start[part] = begin
        begin += around.size[part]
    for position in range(state.offset[node], state.offset[node + 1]):
        neighbor = state.neighbor[position]
        part = state.part[neighbor]
        around.node[around.start[part]] = neighbor
        around.start[part] += 1
    for index in range(found):
        part = around.parts[index]
        around.start[part] -= around.size[part]
    around.start[-1] = found
    return found


@kernel(inline="always")
def _clear(around: Around) -> None:
    for index in range(around.start[-1]):
        around.size[around.parts[index]] = 0
    around.start[-1] = 0


@kernel
def _move(state: Matchings, vertex: int, sides: int, target: int, around: tuple[Around, Around]) -> int:
    """Move a vertex to a part; returns by how much the matchings grow, as far as short paths say."""
    n = len(state.part) // sides
    source, change = state.part[vertex], 0
    for side in range(sides):
        state.part[vertex + side * n] = target
    for side in range(sides):
        node, own = vertex + side * n, around[side]
        lost = state.num_mates[node]
        for index in range(lost):
            own.lost[index] = state.mate[state.offset[node] + index]
        # All are parted before any searches: a search must not meet a node that is matched with another part by name.
        for index in range(lost):
            _replace(state, node, own.lost[index], -1)
            _replace(state, own.lost[index], node, -1)
        for index in range(lost):
            state.counter[0] += 1
            change -= not _search_again(state, own.lost[index], source)
        for index in range(own.start[-1]):
            part = own.parts[index]
            if part != target:
                state.counter[0] += 1
                change += _search(state, node, part, own, PATH_ENTRIES)
    return change


@kernel
def _undo(state: Matchings, vertex: int, sides: int, source: int) -> None:
    """Undo the changes since they were last counted from 0."""
    n = len(state.part) // sides
    for side in range(sides):
        state.part[vertex + side * n] = source
    for index in range(state.counter[1] - 1, -1, -1):
        _set(state, state.changes[index, 0], state.changes[index, 2], state.changes[index, 1])
    state.counter[1] = 0


@kernel
def _search(state: Matchings, node: int, part: int, around: Around, limit: int) -> bool:
    """Match a node with a node of a part along an alternating path, if a search finds one.

    Args:
        around: the neighbors of the node.
        limit: entries that the search may look at after these.
    """
    own, top = state.part[node], 0
    for position in range(around.start[part], around.start[part] + around.size[part]):
        top = _reach(state, node, around.node[position], own, part, top)
        if top < 0:
            return True
    return _go_on(state, own, part, top, limit)


@kernel
def _search_again(state: Matchings, node: int, part: int) -> bool:
    """Match a node that has lost its mate in a part with another node of that part, if a short search finds one."""
    state.stack[0] = node
    return _go_on(state, state.part[node], part, 1, PATH_ENTRIES)


@kernel
def _go_on(state: Matchings, own: int, part: int, top: int, limit: int) -> bool:
    """Go on with a search from the nodes on the stack, the last first."""
    looked = 0
    while top > 0:
        top -= 1
        node = state.stack[top]
        for position in range(state.offset[node], state.offset[node + 1]):
            looked += 1
            if looked > limit:
                return False
            neighbor = state.neighbor[position]
            if state.part[neighbor] == part:
                top = _reach(state, node, neighbor, own, part, top)
                if top < 0:
                    return True
    return False


@kernel(inline="always")
def _reach(state: Matchings, node: int, neighbor: int, own: int, part: int, top: int) -> int:
    """Reach a node of ``part``: push its mate, or end the path there; returns the size of the stack, -1 at the end."""
    if state.seen[neighbor] == state.counter[0]:
        return top
    state.seen[neighbor] = state.counter[0]
    state.parent[neighbor] = node
    mate = _mate_in(state, neighbor, own)
    if mate >= 0:
        state.stack[top] = mate
        return top + 1
    # From the end of the path to its start, each node gets the mate of the next one.
    while neighbor >= 0:
        node = state.parent[neighbor]
        following = _mate_in(state, node, part)
        _replace(state, neighbor, _mate_in(state, neighbor, own), node)
        _replace(state, node, following, neighbor)
        neighbor = following
    return -1


@kernel
def _mate_in(state: Matchings, node: int, part: int) -> int:
    """The mate of a node in a part, or -1."""
    first = state.offset[node]
    for position in range(first, first + state.num_mates[node]):
        if state.mate_part[position] == part:
            return int(state.mate[position])
    return -1


@kernel(inline="always")
def _replace(state: Matchings, node: int, before: int, after: int) -> None:
    """Give a node another mate, and write down the change, unless matchings are only made maximum."""
    index = state.counter[1]
    if index < len(state.changes):
        state.changes[index, 0], state.changes[index, 1], state.changes[index, 2] = node, before, after
        state.counter[1] = index + 1
    _set(state, node, before, after)


@kernel
def _set(state: Matchings, node: int, before: int, after: int) -> None:
    first = state.offset[node]
    last = first + state.num_mates[node]
    position = first
    while position < last and state.mate[position] != before:
        position += 1
    if after >= 0:
        # Behind the last mate, if there was none before.
        state.mate[position] = after
        state.mate_part[position] = state.part[after]
        state.num_mates[node] += position == last
    else:
        state.mate[position] = state.mate[last - 1]
        state.mate_part[position] = state.mate_part[last - 1]
        state.num_mates[node] -= 1
