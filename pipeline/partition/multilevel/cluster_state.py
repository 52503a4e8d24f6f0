"""The state of clusters that form in rounds of tasks: the files, and the tasks that begin and fill them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gnnloom.pipeline.partition.multilevel.clustering import SLOTS, block_ratings, fill_profiles
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.pieces import NUMBER_BYTES, Piece, net_tasks, phase_over, vertex_pieces
from gnnloom.pipeline.partition.multilevel.vectors import create_vector, map_vector
from gnnloom.pipeline.tasks.phase import Phase
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
    pieces, nets = vertex_pieces(n), hypergraph.nets.ranges(net_tasks(hypergraph.num_pins))
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
    hypergraph, ranges = state.hypergraph, state.hypergraph.nets.ranges(net_tasks(state.hypergraph.num_pins))
    of_pins = hypergraph.nets.num_bytes + hypergraph.label_bytes * hypergraph.num_pins
    reads, writes = of_pins + RATING_BYTES * hypergraph.num_nets, state.profile_bytes * hypergraph.num_nets
    held = hypergraph.nets.block_bytes()
    return phase_over(ranges, "fill profiles", _fill, state, reads=reads, writes=writes, files=4, buffers=held)


def _begin(task: Piece[ClusterState]) -> None:
    map_vector(task.work.label_path, "r+")[task.span] = np.arange(task.rows.start, task.rows.stop)
    map_vector(task.work.load_path, "r+")[task.span] = task.work.hypergraph.vertex_weight[task.span]


def _rate(task: Piece[ClusterState]) -> None:
    hypergraph, rating = task.work.hypergraph, map_vector(task.work.rating_path, "r+")
    net_weight = hypergraph.net_weight
    for block in hypergraph.nets.blocks(task.rows):
        rating[block.first_row : block.first_row + len(block.offset) - 1] = block_ratings(block, net_weight)


def _fill(task: Piece[ClusterState]) -> None:
    state = task.work
    profile, rating = map_vector(state.profile_path, "r+"), map_vector(state.rating_path)
    label = map_vector(state.label_path)
    for block in state.hypergraph.nets.blocks(task.rows):
        fill_profiles(block.first_row, block.offset, block.ids, rating, label, profile[:, 0], profile[:, 1])
