"""Contraction: clusters become vertices, nets lose repeated pins, and nets with the same pins become one.

Independent tasks contract ranges of nets.  Identical nets are found by sorting one hash per net, and the nets of the
new vertices by an external sort of (vertex, net) pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.hypergraph import Hypergraph
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph, load_nets
from gnnloom.pipeline.partition.multilevel.incidence import Incidence, IncidenceWriter
from gnnloom.pipeline.partition.multilevel.transpose_incidence import transpose_incidence
from gnnloom.pipeline.partition.multilevel.vectors import store_vector
from gnnloom.pipeline.partition.net_lists import pin_hash, select_nets
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.matrix.csr import index_dtype

#: Tasks that contract the nets together: each holds 8 bytes per cluster, so more of them need more memory.
_NUM_TASKS = 16


@dataclass(frozen=True)
class _Contracted:
    """A range of nets after contraction.

    Attributes:
        nets: the pins of the nets that have two or more left.
        original: ``.npy`` file of the (num_nets,) int64 numbers of these nets before.
        hash: ``.npy`` file of a (num_nets,) uint64 hash of the pins of each net.
    """

    nets: Incidence
    original: Path
    hash: Path


@dataclass(frozen=True)
class _ContractTask:
    """Contracts a range of nets."""

    nets: Incidence
    rows: range
    label_path: Path
    num_clusters: int
    folder: Path


@dataclass(frozen=True)
class ContractedNets:
    """The nets of the hypergraph with clusters as vertices; attributes are those of :class:`DiskHypergraph`."""

    folder: Path
    nets: Incidence
    vertex_weight: NDArray[np.int64]
    net_weight: NDArray[np.int64]

    def load(self) -> Hypergraph:
        """Load the hypergraph into memory, without nets of one pin."""
        return load_nets(self.nets, self.vertex_weight, self.net_weight)

    def on_disk(self, memory: int) -> DiskHypergraph:
        """Complete the hypergraph on disk; sorts the nets of the new vertices in ``memory`` bytes."""
        vertices = transpose_incidence(self.nets, len(self.vertex_weight), self.folder / "vertices", memory)
        return DiskHypergraph(
            self.nets,
            vertices,
            store_vector(self.folder / "weight.npy", self.vertex_weight),
            store_vector(self.folder / "net-weight.npy", self.net_weight),
            int(self.vertex_weight.sum()),
            int(self.vertex_weight.max(initial=0)),
        )


def contract_nets(hypergraph: DiskHypergraph, label: NDArray[Any], folder: Path, cluster: Cluster) -> ContractedNets:
    """Make the clusters of a hypergraph the vertices of a smaller one.

    Args:
        hypergraph: to contract.
        label: (num_vertices,) int32 or int64 cluster of each vertex, numbered from 0 without gaps.
        folder: for the new hypergraph and temporary files.
        cluster: runs the tasks.
    """
    num_clusters = int(label.max()) + 1
    weight = np.zeros(num_clusters, dtype=np.int64)
    np.add.at(weight, label, hypergraph.vertex_weight)
    folder.mkdir(parents=True, exist_ok=True)
    label_path = folder / "label.npy"
    # A file that the tasks map, instead of a copy of n labels in each task's message.
    np.save(label_path, label)
    tasks = [
        _ContractTask(hypergraph.nets, rows, label_path, num_clusters, folder / f"range-{number:03d}")
        for number, rows in enumerate(hypergraph.nets.ranges(_NUM_TASKS))
    ]
    # Tasks finish in any order; the numbered folders put the ranges back in the order of the nets.
    pieces = sorted(cluster.map(_contract_nets, tasks), key=lambda piece: piece.original)
    nets, net_weight = _merge_identical(pieces, hypergraph.net_weight, folder / "nets")
    return ContractedNets(folder, nets, weight, net_weight)


def _contract_nets(task: _ContractTask) -> _Contracted:
    """Contract a range of nets; each keeps its new pins in the order in which they first occur."""
    label = np.load(task.label_path, mmap_mode="r", allow_pickle=False)
    hashes, originals = [], []
    last_net = np.full(task.num_clusters, -1, dtype=np.int64)
    with IncidenceWriter(task.folder, index_dtype(task.num_clusters)) as writer:
        # Marks of earlier blocks never match, because nets are numbered throughout the hypergraph.
        for block in task.nets.blocks(task.rows):
            offset, pins, original, hashed = _contract_block(block.first_row, block.offset, block.ids, label, last_net)
            writer.append(offset, pins)
            originals.append(original)
            hashes.append(hashed)
        nets = writer.close()
    found = _Contracted(nets, task.folder / "original.npy", task.folder / "hash.npy")
    np.save(found.original, np.concatenate(originals))
    np.save(found.hash, np.concatenate(hashes))
    return found


@njit(cache=True, nogil=True)
def _contract_block(
    first_net: int, offset: NDArray[np.int64], pin: NDArray[Any], label: NDArray[Any], last_net: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64], NDArray[np.uint64]]:
    """Return offsets, pins, numbers and hashes of the nets that have two or more pins left.

    Args:
        last_net: (num_clusters,) int64 last net in which each cluster was found, or -1; changed.
    """
    new_offset = np.zeros(len(offset), np.int64)
    new_pin = np.empty(len(pin), label.dtype)
    original = np.empty(len(offset) - 1, np.int64)
    hashed = np.empty(len(offset) - 1, np.uint64)
    kept, end = 0, 0
    # ``last_net`` finds repeated pins without clearing a set for each net.
    for net in range(len(offset) - 1):
        start, total = end, np.uint64(0)
        for position in range(offset[net], offset[net + 1]):
            cluster = label[pin[position]]
            if last_net[cluster] != first_net + net:
                last_net[cluster] = first_net + net
                new_pin[end] = cluster
                total += pin_hash(cluster)
                end += 1
        if end - start < 2:
            end = start
            continue
        original[kept], hashed[kept] = first_net + net, total
        kept += 1
        new_offset[kept] = end
    return new_offset[: kept + 1], new_pin[:end], original[:kept], hashed[:kept]


def _merge_identical(
    pieces: Sequence[_Contracted], net_weight: NDArray[np.int64], folder: Path
) -> tuple[Incidence, NDArray[np.int64]]:
    """Keep the first of the nets with the same pins; returns them and their (num_nets,) int64 weights, summed up."""
    hashed = np.concatenate([np.load(piece.hash, allow_pickle=False) for piece in pieces])
    original = np.concatenate([np.load(piece.original, allow_pickle=False) for piece in pieces])
    # Only 8 bytes per net are sorted; the pins stay on disk.  The stable order puts the first of equal nets first.
    order = np.argsort(hashed, kind="stable")
    weight = net_weight[original] if len(net_weight) else np.ones(len(original), dtype=np.int64)
    is_first = np.zeros(len(hashed), dtype=np.bool_)
    _collect_weights(hashed, order, weight, is_first)
    # One process writes the nets of all ranges, in order, so the result does not depend on the tasks.
    with IncidenceWriter(folder, np.dtype(pieces[0].nets.dtype)) as writer:
        for offset, ids in _kept_rows(pieces, is_first):
            writer.append(offset, ids)
        nets = writer.close()
    return nets, weight[is_first]


@njit(cache=True, nogil=True)
def _collect_weights(
    hashed: NDArray[np.uint64], order: NDArray[np.int64], weight: NDArray[np.int64], is_first: NDArray[np.bool_]
) -> None:
    """Give the first net of each hash the weight of all nets with that hash.

    Args:
        order: (num_nets,) int64 stable order of the hashes.
    """
    first = -1
    # Equal hashes follow each other in ``order``, the net with the lowest number first.
    for net in order:
        if first >= 0 and hashed[net] == hashed[first]:
            weight[first] += weight[net]
        else:
            first = net
            is_first[net] = True


def _kept_rows(
    pieces: Sequence[_Contracted], kept: NDArray[np.bool_]
) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    """Yield offsets and ids of the kept rows, block by block."""
    done = 0
    for piece in pieces:
        for block in piece.nets.blocks():
            size = np.diff(block.offset)
            rows = kept[done : done + len(size)]
            done += len(size)
            yield select_nets(size, block.ids, rows)
