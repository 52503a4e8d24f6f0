"""Cluster vertices in rounds of tasks; the client holds nothing per vertex, and tasks map the labels from files.

As in ``clustering``, every pass fills the profiles of the nets and visits all vertices.  A pass consists of rounds over
ranges of vertices. The vertices of a round choose clusters by the state before the round. Among the vertices that
choose the same cluster, vertices join in the order of their numbers until the cluster is full. The changes are grouped
by ranges of nets and clusters, and then the profiles and weights of each range are updated. How a round is divided
into tasks changes neither the choices nor what fits. As in ``move_rounds``, tasks write to lanes of their own round,
because a task runs twice if its worker dies.

Deterministic rounds: Gottesbüren, Hamann, Deterministic parallel hypergraph partitioning (Euro-Par 2022), section 3;
their vertices rate clusters by all pins of their nets, ours by profiles.
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.partition.multilevel.cluster_joins import (
    TABLE_BYTES,
    fitting_joins,
    join_profiles,
    leave_profiles,
    propose_joins,
)
from gnnloom.pipeline.partition.multilevel.cluster_state import (
    RATING_BYTES,
    ClusterState,
    begin_phases,
    fill_phase,
    number_clusters,
    number_phases,
)
from gnnloom.pipeline.partition.multilevel.clustering import SLOTS
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import Clusters, DiskHypergraph
from gnnloom.pipeline.partition.multilevel.net_updates import (
    UPDATE_BYTES,
    grouped_bytes,
    net_updates,
    route_rows,
    run_bytes,
    spread_bytes,
)
from gnnloom.pipeline.partition.multilevel.pieces import (
    NUMBER_BYTES,
    RangeTask,
    create_vector,
    phase_over,
    range_pieces,
    reading_tasks,
    round_tasks,
    run_pieces,
    shared_lanes,
    writing_tasks,
)
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.run_list import LaneRuns
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.unrecorded import UnrecordedShuffle
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Phase, results
from gnnloom.storage.disk.files import remove_tree
from gnnloom.storage.disk.numpy_files import map_array
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.random_numbers import stream_key

#: Bytes of a join; a round has at most one join per vertex.
_JOIN_BYTES = 24
#: Columns of the arrays that tasks route: a vertex, the cluster that it leaves, and the one that it joins; a net, and
#: the clusters that a pin of it leaves and joins; a cluster, and the weight that it gains or, if negative, loses.
_JOIN, _UPDATE, _WEIGHT = (
    Column(name, "int64", (width,)) for name, width in (("join", 3), ("update", 3), ("weight", 2))
)


@dataclass(frozen=True)
class _Round:
    """Common fields of a round's tasks.

    Attributes:
        state, then: before and after the round.
        key: of the random order that decides which of two vertices that would join each other may.
        rows: the vertices of the round.
        nets, clusters: ranges of the tasks that change profiles and weights; very few vertices make fewer ranges of
            clusters than there are of nets.
        proposed: joins, by range of the cluster that is joined.
        accepted: the joins that fit, by cluster, then by vertex.
        updates, weights: what the joins change, by range of nets and of clusters; in the order of the joins.
    """

    state: ClusterState
    then: ClusterState
    key: np.uint64
    rows: range
    nets: tuple[range, ...]
    clusters: tuple[range, ...]
    proposed: UnrecordedShuffle
    accepted: UnrecordedShuffle
    updates: UnrecordedShuffle
    weights: UnrecordedShuffle

    @classmethod
    def of(
        cls,
        state: ClusterState,
        rows: range,
        key: np.uint64,
        nets: tuple[range, ...],
        clusters: tuple[range, ...],
        workers: int,
    ) -> _Round:
        """A round in a new folder, which :meth:`begin` creates."""
        folder, tasks, scratch = state.folder / f"round-{uuid.uuid4().hex}", len(nets), state.hypergraph.scratch
        proposing = round_tasks(len(rows), workers, scratch, state.hypergraph.steps)
        return cls(
            state,
            state.next(),
            key,
            rows,
            nets,
            clusters,
            UnrecordedShuffle.named(folder, "proposed", proposing, [_JOIN], len(clusters), scratch),
            UnrecordedShuffle.named(folder, "accepted", len(clusters), [_JOIN], scratch=scratch),
            UnrecordedShuffle.named(folder, "updates", tasks, [_UPDATE], len(nets), scratch),
            UnrecordedShuffle.named(folder, "weights", tasks, [_WEIGHT], len(clusters), scratch),
        )

    @property
    def hypergraph(self) -> DiskHypergraph:
        return self.state.hypergraph

    @property
    def folder(self) -> Path:
        return self.proposed.work


def cluster_in_rounds(hypergraph: DiskHypergraph, limit: int, passes: int, folder: Path, cluster: Cluster) -> Clusters:
    """Cluster the vertices.

    Args:
        hypergraph: to cluster.
        limit: the most that a cluster of several vertices may weigh.
        passes: over the nets and the vertices.
        folder: for the files of the clusters, and for files that are deleted at the end.

    Returns:
        Clusters numbered in the order of the vertices that founded them.
    """
    state = ClusterState.of(hypergraph, limit, folder / "clustering")
    state.folder.mkdir(parents=True, exist_ok=True)
    state.create()
    create_vector(state.label_path, (hypergraph.num_vertices,), index_dtype(hypergraph.num_vertices))
    create_vector(state.rating_path, (hypergraph.num_nets,), np.dtype(np.float32))
    for phase in begin_phases(state):
        run_pieces(phase, cluster)
    nets, clusters = _ranges(hypergraph, cluster.workers)
    for number in range(passes):
        run_pieces(fill_phase(state), cluster)
        key = stream_key(number, "clustering")
        for rows in hypergraph.vertices.ranges(hypergraph.steps.rounds):
            state = _run(_Round.of(state, rows, key, nets, clusters, cluster.workers), cluster)
    found = number_clusters(state, folder, cluster)
    shutil.rmtree(state.folder)
    return found


def cluster_phases(hypergraph: DiskHypergraph, passes: int, workers: int) -> list[Phase]:
    """The phases of :func:`cluster_in_rounds`, in which at most all vertices of a round choose a cluster."""
    state = ClusterState.of(hypergraph, 0, Path())
    rows = max(hypergraph.vertices.ranges(hypergraph.steps.rounds), key=len)
    work = _Round.of(state, rows, np.uint64(0), *_ranges(hypergraph, workers), workers)
    propose = _propose_phase(work)
    accept = _accept_phase(work, len(rows), len(propose.tasks))
    num_updates = hypergraph.pins_of(rows)
    spread = _spread_phase(work, len(rows), num_updates, len(accept.tasks))
    joins = [propose, accept, spread, _change_phase(work, num_updates, len(spread.tasks))]
    return [
        *begin_phases(state),
        replace(fill_phase(state), repeats=passes),
        *(replace(phase, repeats=passes * hypergraph.steps.rounds) for phase in joins),
        *number_phases(hypergraph),
    ]


def _ranges(hypergraph: DiskHypergraph, workers: int) -> tuple[tuple[range, ...], tuple[range, ...]]:
    """Ranges of nets and of clusters, which tasks change in every round."""
    steps = hypergraph.steps
    count = round_tasks(hypergraph.num_vertices // steps.rounds, workers, hypergraph.scratch, steps)
    nets = tuple(hypergraph.nets.ranges(count))
    return nets, tuple(range_pieces(range(hypergraph.num_vertices), len(nets)))


def _run(work: _Round, cluster: Cluster) -> ClusterState:
    """Run a round; returns the state after it."""
    work.folder.mkdir()
    work.proposed.create()
    propose = _propose_phase(work)
    num_joins = work.proposed.list_runs(results(propose, cluster))
    work.accepted.create()
    accept = _accept_phase(work, num_joins, len(propose.tasks))
    found = list(results(accept, cluster))
    num_joins, state = work.accepted.list_runs((task, runs) for task, runs, _ in found), work.state
    if num_joins:
        work.updates.create()
        work.weights.create()
        num_updates = sum(updates for *_, updates in found)
        spread = _spread_phase(work, num_joins, num_updates, len(accept.tasks))
        changed = list(results(spread, cluster))
        work.updates.list_runs((task, runs) for task, runs, _ in changed)
        work.weights.list_runs((task, runs) for task, _, runs in changed)
        work.then.create()
        run_pieces(_change_phase(work, num_updates, len(spread.tasks)), cluster)
        work.state.remove()
        state = work.then
    remove_tree(work.folder)
    return state


def _propose_phase(work: _Round) -> Phase:
    net, rows = work.hypergraph.vertices.itemsize, len(work.rows)
    # Of a pin's net, the rating and the profile, and the weight of every cluster in that.
    of_pin = net + RATING_BYTES + work.state.profile_bytes + SLOTS * NUMBER_BYTES
    reads = work.hypergraph.pins_of(work.rows) * of_pin + rows * (3 * NUMBER_BYTES + work.hypergraph.label_bytes)
    pieces = range_pieces(work.rows, work.proposed.lanes.count)
    return phase_over(
        pieces, "propose joins", _propose, work, reads=reads, writes=_JOIN_BYTES * rows, files=7,
        # Joins as they are found, together, and grouped by range; and the table of clusters around a vertex.
        row_bytes=grouped_bytes(_JOIN_BYTES) + _JOIN_BYTES,
        buffers=work.hypergraph.vertices.block_bytes(row_bytes=_JOIN_BYTES) + TABLE_BYTES, at_most=True,
    )  # fmt: skip


def _accept_phase(work: _Round, num_joins: int, proposing: int) -> Phase:
    """Accept joins to some consecutive ranges of clusters.

    Args:
        num_joins: that are proposed.
        proposing: tasks that proposed them.
    """
    count, size, scratch = len(work.clusters), _JOIN_BYTES * num_joins, work.hypergraph.scratch
    numbers = range_pieces(range(count), reading_tasks(count, size, proposing, scratch, work.hypergraph.steps))
    # A weight of the vertex and of the cluster, and two offsets.
    reads = size + 4 * NUMBER_BYTES * num_joins
    return phase_over(
        numbers, "accept joins", _accept, work, reads=reads, writes=size, files=3, lanes=[proposing],
        scratch=scratch,
        # Joins as read, joins by cluster, joins that fit; and two orders and two positions of each join.
        buffers=(3 * _JOIN_BYTES + 4 * NUMBER_BYTES) * -(-num_joins // len(numbers)), at_most=True,
    )  # fmt: skip


def _spread_phase(work: _Round, num_joins: int, num_updates: int, accepting: int) -> Phase:
    """Change labels, and find what else the joins change; tasks share the joins.

    Args:
        num_joins: that are accepted.
        num_updates: nets of their vertices.
        accepting: tasks that accepted them.
    """
    updates, count, scratch = UPDATE_BYTES * num_updates, len(work.nets), work.hypergraph.scratch
    shares = range_pieces(range(num_joins), writing_tasks(count, updates, count, scratch))
    reads = (_JOIN_BYTES + 3 * NUMBER_BYTES) * num_joins + num_updates * work.hypergraph.vertices.itemsize
    writes = updates + (4 * NUMBER_BYTES + work.hypergraph.label_bytes) * num_joins
    lanes = [shared_lanes(accepting, len(shares))]
    return phase_over(
        shares, "spread joins", _spread, work,
        reads=reads, writes=writes, files=3, lanes=lanes, buffers=spread_bytes(), at_most=True,
        scratch=scratch,
    )  # fmt: skip


def _change_phase(work: _Round, num_updates: int, spreading: int) -> Phase:
    """Change the profiles of ranges of nets, and the weights of ranges of clusters.

    Args:
        num_updates: of profiles.
        spreading: tasks that found what changes.
    """
    hypergraph, updates = work.hypergraph, UPDATE_BYTES * num_updates
    state = work.state.profile_bytes * hypergraph.num_nets + NUMBER_BYTES * hypergraph.num_vertices
    # Pins leave in one scan of the updates, and join in another.
    reads = 2 * updates + 2 * RATING_BYTES * num_updates + 4 * NUMBER_BYTES * len(work.rows) + state
    lanes = [spreading, spreading]
    return phase_over(
        work.nets, "change clusters", _change, work,
        reads=reads, writes=state, files=3, lanes=lanes, buffers=run_bytes(), at_most=True,
        scratch=hypergraph.scratch,
    )  # fmt: skip


def _propose(task: RangeTask[_Round]) -> tuple[int, LaneRuns]:
    """Route the joins; return the task's number, and what it wrote."""
    work, state = task.work, task.work.state
    hypergraph, found = state.hypergraph, [np.empty((0, 3), dtype=np.int64)]
    rating, profile = map_array(state.rating_path), map_array(state.profile_path)
    label, load, weight = map_array(state.label_path), map_array(state.load_path), hypergraph.vertex_weight
    for block in hypergraph.vertices.blocks(task.rows):
        joins = np.empty((len(block.offset) - 1, 3), dtype=np.int64)
        count = propose_joins(
            block, weight, rating, profile, label, load, state.limit, work.rows.start, work.rows.stop, work.key, joins
        )  # fmt: skip
        found.append(joins[:count].copy())
    with work.proposed.routed(task.number) as out:
        route_rows(out, _JOIN.name, [np.concatenate(found)], work.clusters, key=2)
    return task.number, out.written


def _accept(task: RangeTask[_Round]) -> tuple[int, LaneRuns, int]:
    """Return the task's number, what it wrote, and the number of nets of the vertices whose joins fit."""
    work, state = task.work, task.work.state
    with OpenFiles(work.folder) as files:
        joins = work.proposed.rows(files).read(task.rows.start, task.rows.stop).column(_JOIN.name)
    # By cluster; the stable order keeps the vertices ascending within each.
    joins = joins[np.argsort(joins[:, 2], kind="stable")]
    fits = fitting_joins(joins, state.hypergraph.vertex_weight, map_array(state.load_path), state.limit)
    joins = joins[fits]
    with work.accepted.routed(task.number) as out:
        out.add(Index.of_offsets(np.array([0, len(joins)])), {_JOIN.name: joins})
    offset = state.hypergraph.vertices.offset()
    return task.number, out.written, int((offset[joins[:, 0] + 1] - offset[joins[:, 0]]).sum())


def _spread(task: RangeTask[_Round]) -> tuple[int, LaneRuns, LaneRuns]:
    """Return the task's number, and what it wrote of nets and of weights."""
    work = task.work
    with OpenFiles(work.folder) as files:
        rows, vertices = work.accepted.rows(files), work.hypergraph.vertices
        with work.weights.routed(task.number) as weights:
            changes = (_weights(work.state, joins) for joins in rows.numbered(task.rows, _JOIN.name))
            route_rows(weights, _WEIGHT.name, changes, work.clusters)
        with work.updates.routed(task.number) as out:
            joins = rows.numbered(task.rows, _JOIN.name)
            updates = (update for block in joins for update in net_updates(block, vertices))
            route_rows(out, _UPDATE.name, updates, work.nets)
    return task.number, out.written, weights.written


def _weights(state: ClusterState, joins: NDArray[np.int64]) -> NDArray[np.int64]:
    """Change the labels of the vertices, and return what their clusters gain and lose."""
    map_array(state.label_path, "r+")[joins[:, 0]] = joins[:, 2]
    moved = state.hypergraph.vertex_weight[joins[:, 0]]
    return np.stack([joins[:, 1:].ravel(), np.stack([-moved, moved], axis=1).ravel()], axis=1)


def _change(task: RangeTask[_Round]) -> None:
    work, own = task.work, (task.number, task.number + 1)
    _copy(work.state.profile_path, work.then.profile_path, task.rows)
    profile, rating = map_array(work.then.profile_path, "r+"), map_array(work.state.rating_path)
    with OpenFiles(work.folder) as files:
        sections = work.updates.rows(files).sections(*own)
        # All vertices leave their clusters before any vertex joins another cluster.
        for update in (leave_profiles, join_profiles):
            for section in sections:
                update(section.read(_UPDATE.name), rating, profile)
        if task.number < len(work.clusters):
            _copy(work.state.load_path, work.then.load_path, work.clusters[task.number])
            load = map_array(work.then.load_path, "r+")
            for section in work.weights.rows(files).sections(*own):
                np.add.at(load, *section.read(_WEIGHT.name).T)


def _copy(source: Path, target: Path, rows: range) -> None:
    map_array(target, "r+")[rows.start : rows.stop] = map_array(source)[rows.start : rows.stop]
