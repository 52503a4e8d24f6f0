"""``frontier``: vertices leave a frontier with probabilities proportional to their degrees, by the dashboard table.

Ribeiro, Towsley (IMC 2010); the table: Zeng et al. (IPDPS 2019), section IV.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.errors import InputError
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.distinct import distinct
from gnnloom.storage.matrix.random_numbers import below
from gnnloom.storage.sampling.sampler import SubgraphSampler, num_neighbors, other_neighbor

#: Vertices in a frontier by default, and the least drawn vertices per vertex of the frontier: in a larger
#: frontier, most vertices of a batch would be uniform.
FRONTIER: Final = 1000
_LEAST_DRAWN: Final = 8
#: Vertices whose followers are drawn together.
_TOGETHER: Final = 16


class FrontierSampler(SubgraphSampler):
    """Starts from a frontier of uniform vertices and replaces popped vertices by neighbors, until ``size`` are drawn.

    A step pops a vertex of the frontier with a probability proportional to its degree, without its self loop. A uniform
    neighbor takes its place. The batch has the first frontier and all vertices that follow. If the neighbor has no
    neighbors itself (in directed graphs), or if no vertex of the frontier has a neighbor, a uniform vertex takes the
    place instead.

    Args:
        frontier: vertices in the frontier, at most ``size``; by default 1000, or an eighth of ``size`` if that is less.
        enlargement: how many times larger than its content the table is when it is compacted, above 1 (eta). A larger
            table is compacted more rarely, and probed more often.
        degree_cap: vertices of more neighbors are popped as if they had this many: on skewed graphs, batches of
            uncapped frontiers consist of the same few hubs.

    Raises:
        InputError: an argument is out of its range.
    """

    kind = "frontier"

    def __init__(
        self,
        graph: WholeGraph,
        seed: int,
        size: int,
        frontier: int | None = None,
        enlargement: float = 3.0,
        degree_cap: int | None = None,
    ) -> None:
        super().__init__(graph, seed, size)
        self.frontier = min(FRONTIER, -(-size // _LEAST_DRAWN)) if frontier is None else frontier
        if not 1 <= self.frontier <= size:
            raise InputError(f"frontier of {self.frontier} vertices: expected 1 to {size}, the vertices to draw")
        if not 1 < enlargement <= 1000:
            raise InputError(f"enlargement {enlargement}: expected a factor above 1, and at most 1000")
        if degree_cap is not None and degree_cap < 1:
            raise InputError(f"degree cap {degree_cap}: expected 1 or more")
        self.enlargement, self.degree_cap = enlargement, degree_cap

    def draw(self, epoch: int, batch: int) -> NDArray[np.int64]:
        return distinct(self.draw_in_order(epoch, batch)[0], overwrite=True)

    def draw_in_order(self, epoch: int, batch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw a batch, and keep the order.

        Returns:
            (size,) int64 vertices in the order in which they were drawn, and (size,) int64 the vertex that was popped
            for each; -1 if none was.
        """
        matrix = self.graph.matrix
        # A slot stands for 2^bits neighbors: at most twice the mean degree, so that about a third of the probes or more
        # hit in a table without outdated slots; a power of two, since a division takes longer than a probe.
        bits = (matrix.nnz // self.graph.num_vertices).bit_length()
        cap = matrix.nnz + 1 if self.degree_cap is None else self.degree_cap
        return _draw_frontier(
            self._key(epoch, batch),
            self.size,
            self.frontier,
            self.enlargement,
            cap,
            bits,
            matrix.indptr,
            matrix.indices,
            self.graph.loop,
        )


@kernel
def _draw_frontier(
    key: np.uint64,
    size: int,
    frontier: int,
    enlargement: float,
    cap: int,
    bits: int,
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    loop: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    drawn, popped = np.empty(size, np.int64), np.full(size, -1, np.int64)
    # The frontier: of each position its vertex, its degree (capped; 0 if it cannot be popped), and its first slot in
    # the dashboard. A slot holds the position that it was filled for. The position's current slots are those from its
    # first on; older ones lie before it, so that a pop invalidates slots without writing to them.
    member = np.empty(frontier, np.int64)
    weight, first = np.zeros(frontier, np.int64), np.zeros(frontier, np.int64)
    for position in range(frontier):
        member[position] = drawn[position] = below(key, position, len(loop))
    for position in range(frontier):
        weight[position] = min(cap, num_neighbors(indptr, loop, member[position]))
    # Who follows a vertex is drawn before the vertex is popped, for several at a time: the processor then waits for
    # their scattered rows together. -1: not drawn yet.
    follower, degree_after = np.full(frontier, -1, np.int64), np.empty(frontier, np.int64)
    waiting = np.arange(frontier)
    counter = _draw_followers(key, frontier, waiting, member, weight, indptr, indices, loop, follower, degree_after)
    count, num_waiting, total = frontier, 0, weight.sum()
    dashboard, end = _compacted(np.empty(0, np.int32), weight, first, bits, enlargement)
    while count < size:
        if total > 0:
            # Probes a uniform slot until it is a current one. A slot stands for 2^bits neighbors, the last one of a
            # position for what is left, so each neighbor is hit with the same probability.
            while True:
                place = below(key, counter, end << bits)
                counter += 1
                position = dashboard[place >> bits]
                if 0 <= place - (first[position] << bits) < weight[position]:
                    break
            if follower[position] < 0:
                counter = _draw_followers(
                    key, counter, waiting[:num_waiting], member, weight, indptr, indices, loop, follower, degree_after
                )
                num_waiting = 0
            popped[count] = member[position]
            total -= weight[position]
            vertex, degree = follower[position], degree_after[position]
            drawn[count] = vertex
            count += 1
        else:
            position, degree, vertex = count % frontier, 0, -1
        if degree == 0 and count < size:
            vertex = below(key, counter, len(loop))
            counter += 1
            drawn[count] = vertex
            count += 1
            degree = num_neighbors(indptr, loop, vertex)
        member[position], weight[position], follower[position] = vertex, min(cap, degree), -1
        total += weight[position]
        waiting[num_waiting] = position
        num_waiting += 1
        if num_waiting == min(frontier, _TOGETHER):
            counter = _draw_followers(
                key, counter, waiting[:num_waiting], member, weight, indptr, indices, loop, follower, degree_after
            )
            num_waiting = 0
        if end + _slots(weight[position], bits) > len(dashboard):
            dashboard, end = _compacted(dashboard, weight, first, bits, enlargement)
        else:
            end = _fill(dashboard, weight, first, position, end, bits)
    return drawn, popped


@kernel
def _draw_followers(
    key: np.uint64,
    counter: int,
    positions: NDArray[np.int64],
    member: NDArray[np.int64],
    weight: NDArray[np.int64],
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    loop: NDArray[np.bool_],
    follower: NDArray[np.int64],
    degree_after: NDArray[np.int64],
) -> int:
    """Draw the successors of the vertices at some positions, and their degrees; return the next counter."""
    for position in positions:
        if weight[position] > 0:
            follower[position], counter = other_neighbor(key, counter, indptr, indices, member[position])
    for position in positions:
        if weight[position] > 0:
            degree_after[position] = num_neighbors(indptr, loop, follower[position])
    return counter


@kernel
def _compacted(
    dashboard: NDArray[np.int32], weight: NDArray[np.int64], first: NDArray[np.int64], bits: int, enlargement: float
) -> tuple[NDArray[np.int32], int]:
    """Refill the dashboard from the frontier; return it, larger if it was too small, and the slots in use."""
    needed = 0
    for position in range(len(weight)):
        needed += _slots(weight[position], bits)
    if enlargement * needed > len(dashboard):
        dashboard = np.empty(np.int64(enlargement * needed) + 16, np.int32)
    end = 0
    for position in range(len(weight)):
        end = _fill(dashboard, weight, first, position, end, bits)
    return dashboard, end


@kernel(inline="always")
def _fill(
    dashboard: NDArray[np.int32],
    weight: NDArray[np.int64],
    first: NDArray[np.int64],
    position: int,
    end: int,
    bits: int,
) -> int:
    """Give a position the slots from ``end`` on; return the next free one."""
    first[position] = end
    stop = end + _slots(weight[position], bits)
    # Not a slice: most are too short for what setting one up costs.
    for slot in range(end, stop):
        dashboard[slot] = position
    return stop


@kernel(inline="always")
def _slots(weight: int, bits: int) -> int:
    return (weight + (1 << bits) - 1) >> bits
