"""Cluster vertices in rounds of tasks; the client holds nothing per vertex, and tasks map the labels from files.

As in ``clustering``, every pass fills the profiles of the nets and visits all vertices.  A pass consists of rounds over
ranges of vertices.  The vertices of a round choose clusters by the state before the round.  Of the vertices that choose
the same cluster, as many join as fit, in the order of their numbers; then the profiles and weights are updated.  How a
round is divided into tasks changes neither the choices nor what fits.  As in ``move_rounds``, tasks write to files of
their own round, because a task runs twice if its worker dies.

Deterministic rounds: Gottesbüren, Hamann, Deterministic parallel hypergraph partitioning (Euro-Par 2022), section 3;
their vertices rate clusters by all pins of their nets, ours by profiles.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.cluster_joins import (
    fitting_joins,
    join_profiles,
    leave_profiles,
    move_weights,
    propose_joins,
)
from gnnloom.pipeline.partition.multilevel.clustering import SLOTS, block_ratings, fill_profiles
from gnnloom.pipeline.partition.multilevel.clusters import Clusters
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.number_clusters import number_clusters
from gnnloom.pipeline.partition.multilevel.pieces import range_pieces, tasks_per_round
from gnnloom.pipeline.partition.multilevel.vectors import create_vector, map_vector, store_vector
from gnnloom.pipeline.tasks.cluster import Cluster, run_tasks
from gnnloom.storage.format.files import remove_tree
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.random_numbers import stream_key

#: Rounds of a pass over the vertices.
_ROUNDS = 16


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
        joins_path: file of (3, num_joins) int64, ascending by the cluster that is joined, then by vertex.
    """

    state: _State
    key: np.uint64
    round: range
    rows: range
    joins_path: Path


@dataclass(frozen=True)
class _AcceptTask:
    """Accepts joins to a range of clusters.

    Attributes:
        proposed: files of all joins of the round, in the order of the vertices.
        accepted_path: file of (num_joins, 3) int64, in the same order as the proposals.
    """

    state: _State
    clusters: range
    proposed: tuple[Path, ...]
    accepted_path: Path


@dataclass(frozen=True)
class _JoinTask:
    """Makes joins: the profiles of a range of nets, the weights of a range of clusters, the labels of some vertices.

    Attributes:
        accepted: files of all joins, in the order of the clusters.
        own: files of the joins whose labels this task changes.
    """

    state: _State
    then: _State
    nets: range
    clusters: range
    accepted: tuple[Path, ...]
    own: tuple[Path, ...]


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
    num_tasks = tasks_per_round(cluster)
    vertices = range_pieces(range(hypergraph.num_vertices), num_tasks)
    run_tasks(cluster, _begin, [_RangeTask(state, rows) for rows in vertices])
    nets = hypergraph.nets.ranges(num_tasks)
    run_tasks(cluster, _rate, [_RangeTask(state, rows) for rows in nets])
    for number in range(passes):
        run_tasks(cluster, _fill, [_RangeTask(state, rows) for rows in nets])
        key = stream_key(number, "clustering")
        for rows in hypergraph.vertices.ranges(_ROUNDS):
            state = _round(state, rows, key, nets, cluster)
    found = number_clusters(state.label_path, state.load_path, hypergraph.total_weight, folder, cluster)
    shutil.rmtree(scratch)
    return found


def _round(state: _State, rows: range, key: np.uint64, nets: Sequence[range], cluster: Cluster) -> _State:
    folder = state.folder / f"round-{uuid.uuid4().hex}"
    folder.mkdir()
    pieces = range_pieces(rows, len(nets))
    clusters = range_pieces(range(state.hypergraph.num_vertices), len(nets))
    proposed = tuple(folder / f"proposed-{number:05d}.npy" for number in range(len(pieces)))
    accepted = tuple(folder / f"accepted-{number:05d}.npy" for number in range(len(clusters)))
    proposals = [_ProposeTask(state, key, rows, piece, path) for piece, path in zip(pieces, proposed, strict=True)]
    run_tasks(cluster, _propose, proposals)
    accepts = [_AcceptTask(state, each, proposed, path) for each, path in zip(clusters, accepted, strict=True)]
    if sum(cluster.map(_accept, accepts)):
        then = state.next()
        then.create()
        # Very few vertices make fewer ranges of clusters than there are of nets.
        ranges = zip_longest(nets, clusters, fillvalue=range(0))
        joins = [
            _JoinTask(state, then, nets_of, clusters_of, accepted, accepted[number :: len(nets)])
            for number, (nets_of, clusters_of) in enumerate(ranges)
        ]
        run_tasks(cluster, _join, joins)
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


def _propose(task: _ProposeTask) -> None:
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
    proposed = np.concatenate(found).T
    # Sorted once here, so that every task that accepts joins reads only those to its own clusters.
    order = np.argsort(proposed[2], kind="stable")
    store_vector(task.joins_path, np.ascontiguousarray(proposed[:, order]))


def _accept(task: _AcceptTask) -> int:
    joins = np.concatenate([_joins_to(path, task.clusters) for path in task.proposed], axis=1).T
    # By cluster; the stable order keeps the vertices ascending within each.
    joins = np.ascontiguousarray(joins[np.argsort(joins[:, 2], kind="stable")])
    state = task.state
    fits = fitting_joins(joins, state.hypergraph.vertex_weight, map_vector(state.load_path), state.limit)
    store_vector(task.accepted_path, joins[fits])
    return int(fits.sum())


def _joins_to(path: Path, clusters: range) -> NDArray[np.int64]:
    """(3, num_joins) int64 proposals to join a cluster of a range."""
    joins = map_vector(path)
    return joins[:, np.searchsorted(joins[2], clusters.start) : np.searchsorted(joins[2], clusters.stop)]


def _join(task: _JoinTask) -> None:
    hypergraph = task.state.hypergraph
    all_joins = [map_vector(path) for path in task.accepted]
    _copy(task.state.profile_path, task.then.profile_path, task.nets)
    profile, rating = map_vector(task.then.profile_path, "r+"), map_vector(task.state.rating_path)
    offset, ids = hypergraph.vertices.offset(), hypergraph.vertices.ids()
    for update in (leave_profiles, join_profiles):
        for joins in all_joins:
            update(joins, offset, ids, rating, profile, task.nets.start, task.nets.stop)
    _copy(task.state.load_path, task.then.load_path, task.clusters)
    load, weight = map_vector(task.then.load_path, "r+"), hypergraph.vertex_weight
    for joins in all_joins:
        move_weights(joins, weight, task.clusters.start, task.clusters.stop, load)
    label = map_vector(task.state.label_path, "r+")
    for joins in map(map_vector, task.own):
        label[joins[:, 0]] = joins[:, 2]


def _copy(source: Path, target: Path, rows: range) -> None:
    map_vector(target, "r+")[rows.start : rows.stop] = map_vector(source)[rows.start : rows.stop]
