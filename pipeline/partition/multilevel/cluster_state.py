"""Clusters that form in rounds of tasks: their files, and the tasks that begin, fill and number them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import numpy as np

from gnnloom.pipeline.partition.multilevel.clustering import SLOTS, block_ratings, fill_profiles
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import Clusters, DiskHypergraph
from gnnloom.pipeline.partition.multilevel.pieces import (
    NUMBER_BYTES,
    RangeTask,
    create_vector,
    in_order,
    net_tasks,
    phase_over,
    run_pieces,
    vertex_pieces,
)
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Phase, results
from gnnloom.storage.disk.numpy_files import map_array
from gnnloom.storage.matrix.csr import index_dtype

#: Bytes of the rating of a net.
RATING_BYTES = 4


@dataclass(frozen=True)
class ClusterState:
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

    @classmethod
    def of(cls, hypergraph: DiskHypergraph, limit: int, folder: Path) -> ClusterState:
        """The state before the first round."""
        return cls(hypergraph, limit, folder, folder / "load.npy", folder / "profile.npy")

    @property
    def profile_bytes(self) -> int:
        """Bytes of the profile of a net."""
        return 2 * SLOTS * self.hypergraph.label_bytes

    @property
    def label_path(self) -> Path:
        """File of the (num_vertices,) cluster of each vertex; each round changes it in place."""
        return self.folder / "label.npy"

    @property
    def rating_path(self) -> Path:
        """File of (num_nets,) float32."""
        return self.folder / "rating.npy"

    def next(self) -> ClusterState:
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


def begin_phases(state: ClusterState) -> list[Phase]:
    """Make every vertex a cluster of its own, and rate the nets."""
    hypergraph, n = state.hypergraph, state.hypergraph.num_vertices
    weights, labels = NUMBER_BYTES * n, hypergraph.label_bytes * n
    steps = hypergraph.steps
    pieces, nets = vertex_pieces(n, steps), hypergraph.nets.ranges(net_tasks(hypergraph.num_pins, steps))
    read, ratings = hypergraph.nets.num_bytes + hypergraph.net_weight_bytes, RATING_BYTES * hypergraph.num_nets
    files = 2 + hypergraph.is_weighted
    return [
        phase_over(
            pieces, "begin clusters", _begin, state,
            reads=weights, writes=weights + labels, files=1, row_bytes=NUMBER_BYTES,
        ),
        # The pins, the divisors and the ratings of the nets of a block, before these are rounded.
        phase_over(
            nets, "rate nets", _rate, state,
            reads=read, writes=ratings, files=files, buffers=hypergraph.nets.block_bytes(row_bytes=4 * NUMBER_BYTES),
        ),
    ]  # fmt: skip


def fill_phase(state: ClusterState) -> Phase:
    """Fill the profiles of all nets."""
    hypergraph = state.hypergraph
    ranges = hypergraph.nets.ranges(net_tasks(hypergraph.num_pins, hypergraph.steps))
    of_pins = hypergraph.nets.num_bytes + hypergraph.label_bytes * hypergraph.num_pins
    reads, writes = of_pins + RATING_BYTES * hypergraph.num_nets, state.profile_bytes * hypergraph.num_nets
    held = hypergraph.nets.block_bytes()
    return phase_over(ranges, "fill profiles", _fill, state, reads=reads, writes=writes, files=4, buffers=held)


def _begin(task: RangeTask[ClusterState]) -> None:
    map_array(task.work.label_path, "r+")[task.span] = np.arange(task.rows.start, task.rows.stop)
    map_array(task.work.load_path, "r+")[task.span] = task.work.hypergraph.vertex_weight[task.span]


def _rate(task: RangeTask[ClusterState]) -> None:
    hypergraph, rating = task.work.hypergraph, map_array(task.work.rating_path, "r+")
    net_weight = hypergraph.net_weight
    for block in hypergraph.nets.blocks(task.rows):
        rating[block.first_row : block.first_row + len(block.offset) - 1] = block_ratings(block, net_weight)


def _fill(task: RangeTask[ClusterState]) -> None:
    state = task.work
    profile, rating = map_array(state.profile_path, "r+"), map_array(state.rating_path)
    label = map_array(state.label_path)
    for block in state.hypergraph.nets.blocks(task.rows):
        fill_profiles(block, rating, label, profile[:, 0], profile[:, 1])


@dataclass(frozen=True)
class _Numbering:
    """Common fields of the numbering tasks.

    Attributes:
        label_path: file of (num_vertices,) integers, the founder of each vertex's cluster.
        load_path: file of (num_vertices,) int64, the weight of the cluster that each vertex founded; 0 for none.
        clusters: the result; its numbers are not known before clusters are counted.
    """

    label_path: Path
    load_path: Path
    clusters: Clusters

    @property
    def number_path(self) -> Path:
        """File of (num_vertices,) integers, the number of the cluster that each vertex founded."""
        return self.label_path.with_name("number.npy")


def number_clusters(state: ClusterState, folder: Path, cluster: Cluster) -> Clusters:
    """Store clusters with numbers instead of the names of the vertices that founded them.

    Args:
        state: the last one.
        folder: for the files of the result.
    """
    hypergraph = state.hypergraph
    num_vertices = hypergraph.num_vertices
    clusters = Clusters(folder / "label.npy", folder / "weight.npy", 0, hypergraph.total_weight, 0)
    work = _Numbering(state.label_path, state.load_path, clusters)
    counts = in_order(results(_count_phase(work, hypergraph), cluster))
    firsts = [0, *accumulate(count for count, _ in counts)]
    clusters = replace(clusters, num_clusters=firsts[-1], heaviest=max(heaviest for _, heaviest in counts))
    folder.mkdir(parents=True, exist_ok=True)
    create_vector(work.number_path, (num_vertices,), index_dtype(num_vertices))
    create_vector(clusters.label_path, (num_vertices,), index_dtype(clusters.num_clusters))
    create_vector(clusters.weight_path, (clusters.num_clusters,), np.dtype(np.int64))
    # A label may be any vertex, so all numbers have to be there first.
    for phase in _number_phases(work, hypergraph, firsts):
        run_pieces(phase, cluster)
    return clusters


def number_phases(hypergraph: DiskHypergraph) -> list[Phase]:
    """The phases of :func:`number_clusters`; at most, every vertex is a cluster."""
    work = _Numbering(Path(), Path(), Clusters(Path(), Path(), hypergraph.num_vertices, 0, 0))
    return [_count_phase(work, hypergraph), *_number_phases(work, hypergraph)]


def _count_phase(work: _Numbering, hypergraph: DiskHypergraph) -> Phase:
    reads = NUMBER_BYTES * hypergraph.num_vertices
    pieces = vertex_pieces(hypergraph.num_vertices, hypergraph.steps)
    return phase_over(pieces, "count clusters", _count, work, reads=reads, files=1, row_bytes=1)


def _number_phases(work: _Numbering, hypergraph: DiskHypergraph, firsts: Sequence[int] | None = None) -> list[Phase]:
    """Number the clusters that the vertices of a piece founded, then relabel the vertices."""
    n = hypergraph.num_vertices
    pieces, label, numbers = vertex_pieces(n, hypergraph.steps), hypergraph.label_bytes * n, NUMBER_BYTES * n
    writes = label + numbers
    return [
        phase_over(
            pieces, "number clusters", _number, work,
            reads=numbers, writes=writes, files=1, firsts=firsts, row_bytes=3 * NUMBER_BYTES + 1, at_most=True,
        ),
        phase_over(
            pieces, "name clusters", _relabel, work, reads=2 * label, writes=label, files=2, row_bytes=2 * NUMBER_BYTES
        ),
    ]  # fmt: skip


def _count(task: RangeTask[_Numbering]) -> tuple[int, tuple[int, int]]:
    """The task's number, and the number and the largest weight of the clusters that its vertices founded."""
    load = map_array(task.work.load_path)[task.span]
    # Every vertex weighs 1 or more, so a cluster without weight has no vertex left.
    return task.number, (int(np.count_nonzero(load)), int(load.max()))


def _number(task: RangeTask[_Numbering]) -> None:
    load = map_array(task.work.load_path)[task.span]
    is_used = load > 0
    map_array(task.work.number_path, "r+")[task.span] = task.first - 1 + np.cumsum(is_used)
    weight = load[is_used]
    map_array(task.work.clusters.weight_path, "r+")[task.first : task.first + len(weight)] = weight


def _relabel(task: RangeTask[_Numbering]) -> None:
    label = map_array(task.work.label_path)[task.span]
    map_array(task.work.clusters.label_path, "r+")[task.span] = map_array(task.work.number_path)[label]
