"""Cluster vertices in rounds of tasks; the client holds nothing per vertex, and tasks map the labels from files.

As in ``clustering``, every pass fills the profiles of the nets and visits all vertices.  A pass consists of rounds over
ranges of vertices.  The vertices of a round choose clusters by the state before the round.  Of the vertices that choose
the same cluster, as many join as fit, in the order of their numbers.  What the joins change is grouped by ranges of
nets and clusters, and then the profiles and weights of each range are updated.  How a round is divided into tasks
changes neither the choices nor what fits.  As in ``move_rounds``, tasks write to lanes of their own round, because a
task runs twice if its worker dies.

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
    fitting_joins,
    join_profiles,
    leave_profiles,
    propose_joins,
)
from gnnloom.pipeline.partition.multilevel.clustering import SLOTS, block_ratings, fill_profiles
from gnnloom.pipeline.partition.multilevel.clusters import Clusters
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.net_updates import UPDATE_BYTES, net_updates
from gnnloom.pipeline.partition.multilevel.number_clusters import number_clusters
from gnnloom.pipeline.partition.multilevel.pieces import (
    net_tasks,
    range_pieces,
    reading_tasks,
    round_tasks,
    vertex_pieces,
    writing_tasks,
)
from gnnloom.pipeline.partition.multilevel.route_rows import route_rows
from gnnloom.pipeline.partition.multilevel.vectors import create_vector, map_vector
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.run_list import LaneRuns
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.unrecorded import UnrecordedShuffle
from gnnloom.pipeline.tasks.cluster import Cluster, run_tasks
from gnnloom.storage.format.files import remove_tree
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.random_numbers import stream_key

#: Rounds of a pass over the vertices.
ROUNDS = 16
#: Bytes of a join, of which a round has at most one for each of its vertices.
JOIN_BYTES = 24
#: Columns of what tasks route: a vertex, the cluster that it leaves, and the one that it joins; a net, and the clusters
#: that a pin of it leaves and joins; a cluster, and the weight that it gains or, if negative, loses.
_JOIN, _UPDATE, _WEIGHT = (
    Column(name, "int64", (width,)) for name, width in (("join", 3), ("update", 3), ("weight", 2))
)


@dataclass(frozen=True)
class _State:
    """The files of the clusters before a round; small and picklable.

    Attributes:
        limit: the most that a cluster of several vertices may weigh.
        folder: for all files.
        load_path: file of (num_vertices,) int64, the weight of each cluster.
        profile_path: file of (num_nets, 2, SLOTS) integers, the clusters of each net and the pins in them.
    """

    hypergraph: DiskHypergraph
    limit: int
    folder: Path
    load_path: Path
    profile_path: Path

    @property
    def label_path(self) -> Path:
        """File of the (num_vertices,) cluster of each vertex; each round changes it in place."""
        return self.folder / "label.npy"

    @property
    def rating_path(self) -> Path:
        """File of (num_nets,) float32."""
        return self.folder / "rating.npy"

    def next(self) -> _State:
        """The state after a round, in new files."""
        number = uuid.uuid4().hex
        return replace(
            self, load_path=self.folder / f"load-{number}.npy", profile_path=self.folder / f"profile-{number}.npy"
        )

    def create(self) -> None:
        """Create the files of the weights and profiles."""
        num_vertices, num_nets = self.hypergraph.num_vertices, self.hypergraph.num_nets
        create_vector(self.load_path, (num_vertices,), np.dtype(np.int64))
        create_vector(self.profile_path, (num_nets, 2, SLOTS), index_dtype(num_vertices))

    def remove(self) -> None:
        self.load_path.unlink()
        self.profile_path.unlink()


@dataclass(frozen=True)
class _RangeTask:
    """Fills files for a range of vertices or nets."""

    state: _State
    rows: range


@dataclass(frozen=True)
class _ProposeTask:
    """Proposes joins of some of the vertices of a round.

    Attributes:
        clusters: ranges of clusters.
        proposed: joins, by range of the cluster that is joined.
        number: of the task.
    """

    state: _State
    key: np.uint64
    round: range
    rows: range
    clusters: tuple[range, ...]
    proposed: UnrecordedShuffle
    number: int


@dataclass(frozen=True)
class _AcceptTask:
    """Accepts joins to some consecutive ranges of clusters.

    Attributes:
        numbers: of the ranges.
        proposed: all joins of the round, in the order of the vertices.
        accepted: the joins that fit, by cluster, then by vertex.
        number: of the task.
    """

    state: _State
    numbers: range
    proposed: UnrecordedShuffle
    accepted: UnrecordedShuffle
    number: int


@dataclass(frozen=True)
class _SpreadTask:
    """Changes the labels of some of the vertices that join a cluster, and finds what else their joins change.

    Attributes:
        rows: numbers of the joins, of all that were accepted.
        nets, clusters: ranges of the tasks that change profiles and weights.
        updates: what joins change of nets, by range of nets.
        weights: what joins change of weights, by range of clusters.
        number: of the task.
    """

    state: _State
    rows: range
    accepted: UnrecordedShuffle
    nets: tuple[range, ...]
    clusters: tuple[range, ...]
    updates: UnrecordedShuffle
    weights: UnrecordedShuffle
    number: int


@dataclass(frozen=True)
class _JoinTask:
    """Changes the profiles of a range of nets, and the weights of a range of clusters.

    Attributes:
        number: of both ranges.
        nets, clusters: all ranges; very few vertices make fewer ranges of clusters than there are of nets.
        updates, weights: what the joins change, in the order of the clusters that are joined.
    """

    state: _State
    then: _State
    number: int
    nets: tuple[range, ...]
    clusters: tuple[range, ...]
    updates: UnrecordedShuffle
    weights: UnrecordedShuffle


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
    scratch = folder / "clustering"
    state = _State(hypergraph, limit, scratch, scratch / "load.npy", scratch / "profile.npy")
    scratch.mkdir(parents=True, exist_ok=True)
    state.create()
    create_vector(state.label_path, (hypergraph.num_vertices,), index_dtype(hypergraph.num_vertices))
    create_vector(state.rating_path, (hypergraph.num_nets,), np.dtype(np.float32))
    pieces = vertex_pieces(hypergraph.num_vertices)
    run_tasks(cluster, _begin, [_RangeTask(state, range(rows.start, rows.stop)) for rows in pieces])
    passed = hypergraph.nets.ranges(net_tasks(hypergraph.num_pins))
    run_tasks(cluster, _rate, [_RangeTask(state, rows) for rows in passed])
    num_tasks = round_tasks(hypergraph.num_vertices // ROUNDS, cluster.workers)
    nets = tuple(hypergraph.nets.ranges(num_tasks))
    clusters = tuple(range_pieces(range(hypergraph.num_vertices), len(nets)))
    for number in range(passes):
        run_tasks(cluster, _fill, [_RangeTask(state, rows) for rows in passed])
        key = stream_key(number, "clustering")
        for rows in hypergraph.vertices.ranges(ROUNDS):
            state = _round(state, rows, key, nets, clusters, cluster)
    found = number_clusters(state.label_path, state.load_path, hypergraph.total_weight, folder, cluster)
    shutil.rmtree(scratch)
    return found


def _round(
    state: _State, rows: range, key: np.uint64, nets: tuple[range, ...], clusters: tuple[range, ...], cluster: Cluster
) -> _State:
    folder = state.folder / f"round-{uuid.uuid4().hex}"
    folder.mkdir()
    pieces = range_pieces(rows, round_tasks(len(rows), cluster.workers))
    proposed = UnrecordedShuffle.create(folder, "proposed", len(pieces), [_JOIN], len(clusters))
    proposals = [_ProposeTask(state, key, rows, piece, clusters, proposed, task) for task, piece in enumerate(pieces)]
    num_bytes = JOIN_BYTES * proposed.list_runs(cluster.map(_propose, proposals))
    joined = range_pieces(range(len(clusters)), reading_tasks(len(clusters), num_bytes, len(pieces)))
    accepted = UnrecordedShuffle.create(folder, "accepted", len(joined), [_JOIN])
    accepts = [_AcceptTask(state, numbers, proposed, accepted, task) for task, numbers in enumerate(joined)]
    found = list(cluster.map(_accept, accepts))
    num_joins = accepted.list_runs((task, runs) for task, runs, _ in found)
    if num_joins:
        num_updates = sum(updates for *_, updates in found)
        shares = range_pieces(range(num_joins), writing_tasks(len(nets), UPDATE_BYTES * num_updates, len(nets)))
        updates = UnrecordedShuffle.create(folder, "updates", len(shares), [_UPDATE], len(nets))
        weights = UnrecordedShuffle.create(folder, "weights", len(shares), [_WEIGHT], len(clusters))
        spreads = [
            _SpreadTask(state, share, accepted, nets, clusters, updates, weights, task)
            for task, share in enumerate(shares)
        ]
        changed = list(cluster.map(_spread, spreads))
        updates.list_runs((task, runs) for task, runs, _ in changed)
        weights.list_runs((task, runs) for task, _, runs in changed)
        then = state.next()
        then.create()
        changes = [_JoinTask(state, then, number, nets, clusters, updates, weights) for number in range(len(nets))]
        run_tasks(cluster, _join, changes)
        state.remove()
        state = then
    remove_tree(folder)
    return state


def _begin(task: _RangeTask) -> None:
    """Make every vertex a cluster of its own."""
    rows = slice(task.rows.start, task.rows.stop)
    map_vector(task.state.label_path, "r+")[rows] = np.arange(rows.start, rows.stop)
    map_vector(task.state.load_path, "r+")[rows] = task.state.hypergraph.vertex_weight[rows]


def _rate(task: _RangeTask) -> None:
    hypergraph, rating = task.state.hypergraph, map_vector(task.state.rating_path, "r+")
    net_weight = hypergraph.net_weight
    for block in hypergraph.nets.blocks(task.rows):
        rating[block.first_row : block.first_row + len(block.offset) - 1] = block_ratings(block, net_weight)


def _fill(task: _RangeTask) -> None:
    state = task.state
    profile, rating = map_vector(state.profile_path, "r+"), map_vector(state.rating_path)
    label = map_vector(state.label_path)
    for block in state.hypergraph.nets.blocks(task.rows):
        fill_profiles(block.first_row, block.offset, block.ids, rating, label, profile[:, 0], profile[:, 1])


def _propose(task: _ProposeTask) -> tuple[int, LaneRuns]:
    """Route the joins; return the task's number, and what it wrote."""
    state = task.state
    hypergraph, found = state.hypergraph, [np.empty((0, 3), dtype=np.int64)]
    rating, profile = map_vector(state.rating_path), map_vector(state.profile_path)
    label, load, weight = map_vector(state.label_path), map_vector(state.load_path), hypergraph.vertex_weight
    for block in hypergraph.vertices.blocks(task.rows):
        joins = np.empty((len(block.offset) - 1, 3), dtype=np.int64)
        count = propose_joins(
            block.first_row, block.offset, block.ids, weight, rating, profile, label, load, state.limit,
            task.round.start, task.round.stop, task.key, joins,
        )  # fmt: skip
        found.append(joins[:count].copy())
    with task.proposed.routed(task.number) as out:
        route_rows(out, _JOIN.name, [np.concatenate(found)], task.clusters, key=2)
    return task.number, out.written


def _accept(task: _AcceptTask) -> tuple[int, LaneRuns, int]:
    """Return the task's number, what it wrote, and the number of nets of the vertices whose joins fit."""
    with OpenFiles(task.proposed.work) as files:
        joins = task.proposed.rows(files).read(task.numbers.start, task.numbers.stop).column(_JOIN.name)
    # By cluster; the stable order keeps the vertices ascending within each.
    joins = joins[np.argsort(joins[:, 2], kind="stable")]
    state = task.state
    fits = fitting_joins(joins, state.hypergraph.vertex_weight, map_vector(state.load_path), state.limit)
    joins = joins[fits]
    with task.accepted.routed(task.number) as out:
        out.add(Index.of_offsets(np.array([0, len(joins)])), {_JOIN.name: joins})
    offset = state.hypergraph.vertices.offset()
    return task.number, out.written, int((offset[joins[:, 0] + 1] - offset[joins[:, 0]]).sum())


def _spread(task: _SpreadTask) -> tuple[int, LaneRuns, LaneRuns]:
    """Return the task's number, and what it wrote of nets and of weights."""
    with OpenFiles(task.accepted.work) as files:
        rows, vertices = task.accepted.rows(files), task.state.hypergraph.vertices
        with task.weights.routed(task.number) as weights:
            changes = (_weights(task.state, joins) for joins in rows.numbered(task.rows, _JOIN.name))
            route_rows(weights, _WEIGHT.name, changes, task.clusters)
        with task.updates.routed(task.number) as out:
            joins = rows.numbered(task.rows, _JOIN.name)
            updates = (update for block in joins for update in net_updates(block, vertices))
            route_rows(out, _UPDATE.name, updates, task.nets)
    return task.number, out.written, weights.written


def _weights(state: _State, joins: NDArray[np.int64]) -> NDArray[np.int64]:
    """Change the labels of the vertices, and return what their clusters gain and lose."""
    map_vector(state.label_path, "r+")[joins[:, 0]] = joins[:, 2]
    moved = state.hypergraph.vertex_weight[joins[:, 0]]
    return np.stack([joins[:, 1:].ravel(), np.stack([-moved, moved], axis=1).ravel()], axis=1)


def _join(task: _JoinTask) -> None:
    nets, own = task.nets[task.number], (task.number, task.number + 1)
    _copy(task.state.profile_path, task.then.profile_path, nets)
    profile, rating = map_vector(task.then.profile_path, "r+"), map_vector(task.state.rating_path)
    with OpenFiles(task.updates.work) as files:
        sections = task.updates.rows(files).sections(*own)
        # All leave before any of them joins another cluster.
        for update in (leave_profiles, join_profiles):
            for section in sections:
                update(section.read(_UPDATE.name), rating, profile)
        if task.number < len(task.clusters):
            _copy(task.state.load_path, task.then.load_path, task.clusters[task.number])
            load = map_vector(task.then.load_path, "r+")
            for section in task.weights.rows(files).sections(*own):
                np.add.at(load, *section.read(_WEIGHT.name).T)


def _copy(source: Path, target: Path, rows: range) -> None:
    map_vector(target, "r+")[rows.start : rows.stop] = map_vector(source)[rows.start : rows.stop]
