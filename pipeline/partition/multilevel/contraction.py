"""Contraction: clusters become vertices, nets lose repeated pins, and nets with the same pins become one.

Tasks contract ranges of nets, find identical ones by ranges of a hash, and write what is kept.  The nets of the new
vertices come from an external sort of (vertex, net) pairs.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.hypergraph import Hypergraph
from gnnloom.pipeline.partition.multilevel.clusters import Clusters
from gnnloom.pipeline.partition.multilevel.contraction_sizes import ContractionSizes
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph, load_nets
from gnnloom.pipeline.partition.multilevel.incidence import Incidence, IncidenceWriter
from gnnloom.pipeline.partition.multilevel.join_lists import join_lists
from gnnloom.pipeline.partition.multilevel.transpose_incidence import transpose_incidence
from gnnloom.pipeline.partition.multilevel.vectors import create_vector, map_vector, store_vector
from gnnloom.pipeline.partition.net_lists import pin_hash, select_nets
from gnnloom.pipeline.tasks.cluster import Cluster, run_tasks
from gnnloom.storage.matrix.csr import index_dtype


@dataclass(frozen=True)
class _ContractTask:
    """Contracts a range of nets; holds a hash and a number for each of them."""

    nets: Incidence
    rows: range
    clusters: Clusters
    folder: Path

    @property
    def original_path(self) -> Path:
        """File of the (num_kept,) int64 numbers of the nets that have two or more pins left, ascending."""
        return self.folder / "original.npy"

    @property
    def hash_path(self) -> Path:
        """File of (2, num_kept) uint64, ascending hashes of the pins of these nets, and the nets' numbers."""
        return self.folder / "hash.npy"


@dataclass(frozen=True)
class _MergeTask:
    """Finds identical nets with hashes in a range: those that begin with the ``bits`` bits of ``number``."""

    contracted: tuple[_ContractTask, ...]
    net_weight_path: Path | None
    bits: int
    number: int
    folder: Path

    @property
    def kept_path(self) -> Path:
        """File of (2, num_kept) int64, the first of the nets with the same pins, ascending, and their weight."""
        return self.folder / f"kept-{self.number:05d}.npy"


@dataclass(frozen=True)
class _SelectTask:
    """Writes the nets that are kept of a range, and their weights.

    Attributes:
        pieces: the nets of this range after contraction.
        first: number of the first net that is kept.
    """

    contracted: _ContractTask
    pieces: Incidence
    merged: tuple[_MergeTask, ...]
    first: int
    net_weight_path: Path


@dataclass(frozen=True)
class ContractedNets:
    """The nets of the hypergraph with clusters as vertices.

    Attributes:
        nets: the pins of every net.
        net_weight_path: file of the (num_nets,) int64 weight of each net.
    """

    folder: Path
    clusters: Clusters
    nets: Incidence
    net_weight_path: Path

    def load(self) -> Hypergraph:
        """Load the hypergraph into memory, without nets of one pin."""
        return load_nets(self.nets, np.array(map_vector(self.clusters.weight_path)), map_vector(self.net_weight_path))

    def on_disk(self, memory: int, cluster: Cluster) -> DiskHypergraph:
        """Complete the hypergraph on disk; sorts the nets of the new vertices in ``memory`` bytes for each task."""
        clusters = self.clusters
        vertices = transpose_incidence(self.nets, clusters.num_clusters, self.folder / "vertices", memory, cluster)
        return DiskHypergraph(
            self.nets,
            vertices,
            clusters.weight_path,
            self.net_weight_path,
            clusters.total_weight,
            clusters.heaviest,
        )


def contract_nets(hypergraph: DiskHypergraph, clusters: Clusters, folder: Path, cluster: Cluster) -> ContractedNets:
    """Make the clusters of a hypergraph the vertices of a smaller one.

    Args:
        hypergraph: to contract.
        clusters: of its vertices.
        folder: for the new hypergraph and temporary files.
        cluster: runs the tasks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sizes = ContractionSizes.of(hypergraph.num_nets, hypergraph.num_pins, cluster.memory)
    contracts = tuple(
        _ContractTask(hypergraph.nets, rows, clusters, folder / f"range-{number:05d}")
        for number, rows in enumerate(hypergraph.nets.ranges(sizes.num_ranges))
    )
    pieces = dict(cluster.map(_contract_nets, contracts))
    merges = tuple(
        _MergeTask(contracts, hypergraph.net_weight_path, sizes.hash_bits, number, folder)
        for number in range(1 << sizes.hash_bits)
    )
    run_tasks(cluster, _merge_identical, merges)
    firsts = _first_kept(merges, [contract.rows for contract in contracts])
    net_weight_path = folder / "net-weight.npy"
    create_vector(net_weight_path, (firsts[-1],), np.dtype(np.int64))
    selects = [
        _SelectTask(contract, pieces[contract.rows.start], merges, first, net_weight_path)
        for contract, first in zip(contracts, firsts, strict=False)
    ]
    kept = dict(cluster.map(_select, selects))
    nets = join_lists([kept[contract.rows.start] for contract in contracts], folder / "nets", cluster)
    for contract in contracts:
        shutil.rmtree(contract.folder)
    for merge in merges:
        merge.kept_path.unlink()
    return ContractedNets(folder, clusters, nets, net_weight_path)


def _first_kept(merges: Sequence[_MergeTask], ranges: Sequence[range]) -> list[int]:
    """How many nets are kept before each of consecutive ranges, and how many of all."""
    edges = np.array([0, *(rows.stop for rows in ranges)])
    before = np.zeros(len(edges), dtype=np.int64)
    for merge in merges:
        before += np.searchsorted(map_vector(merge.kept_path)[0], edges)
    first: list[int] = before.tolist()
    return first


def _contract_nets(task: _ContractTask) -> tuple[int, Incidence]:
    """Contract a range of nets; each keeps its new pins in the order in which they first occur."""
    label, num_clusters = task.clusters.label, task.clusters.num_clusters
    originals, hashes = [], []
    with IncidenceWriter(task.folder / "contracted", index_dtype(num_clusters)) as writer:
        for block in task.nets.blocks(task.rows):
            offset, pins, original, hashed = _contract_block(block.first_row, block.offset, block.ids, label)
            writer.append(offset, pins)
            originals.append(original)
            hashes.append(hashed)
        nets = writer.close()
    original, hashed = np.concatenate(originals), np.concatenate(hashes)
    store_vector(task.original_path, original)
    # The stable order keeps the nets with one hash ascending.
    order = np.argsort(hashed, kind="stable")
    store_vector(task.hash_path, np.stack([hashed[order], original[order].astype(np.uint64)]))
    return task.rows.start, nets


@njit(cache=True, nogil=True)
def _contract_block(
    first_net: int, offset: NDArray[np.int64], pin: NDArray[Any], label: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64], NDArray[np.uint64]]:
    """Return offsets, pins, numbers and hashes of the nets that have two or more pins left."""
    new_offset = np.zeros(len(offset), np.int64)
    new_pin = np.empty(len(pin), label.dtype)
    original = np.empty(len(offset) - 1, np.int64)
    hashed = np.empty(len(offset) - 1, np.uint64)
    # A hash table of the clusters of one net; an entry of another net counts as free, so nothing is cleared.
    size = 2
    while size < 2 * np.max(np.diff(offset)):
        size *= 2
    seen, seen_in = np.empty(size, np.int64), np.full(size, -1, np.int64)
    kept, end = 0, 0
    for net in range(len(offset) - 1):
        start, total = end, np.uint64(0)
        for position in range(offset[net], offset[net + 1]):
            cluster = int(label[pin[position]])
            hashed_pin = pin_hash(cluster)
            slot = np.int64(hashed_pin & np.uint64(size - 1))
            while seen_in[slot] == net and seen[slot] != cluster:
                slot = (slot + 1) & (size - 1)
            if seen_in[slot] != net:
                seen[slot], seen_in[slot] = cluster, net
                new_pin[end] = cluster
                total += hashed_pin
                end += 1
        if end - start < 2:
            end = start
            continue
        original[kept], hashed[kept] = first_net + net, total
        kept += 1
        new_offset[kept] = end
    return new_offset[: kept + 1], new_pin[:end], original[:kept], hashed[:kept]


def _merge_identical(task: _MergeTask) -> None:
    """Keep the first net of those with the same pins, with the weight of all of them."""
    hashed, net = np.concatenate([_hashes_within(each.hash_path, task) for each in task.contracted], axis=1)
    # Ranges of nets come in order, so among equal hashes the stable order puts the net with the lowest number first.
    order = np.argsort(hashed, kind="stable")
    original = net.astype(np.int64)
    weight = map_vector(task.net_weight_path)[original] if task.net_weight_path else np.ones_like(original)
    is_first = np.zeros(len(hashed), dtype=np.bool_)
    _collect_weights(hashed, order, weight, is_first)
    kept = np.stack([original[is_first], weight[is_first]])
    store_vector(task.kept_path, kept[:, np.argsort(kept[0], kind="stable")])


def _hashes_within(path: Path, task: _MergeTask) -> NDArray[np.uint64]:
    """(2, num_nets) uint64 hashes and nets whose hash is in the range of a task."""
    hashes, shift = map_vector(path), 64 - task.bits
    first, last = np.uint64(task.number << shift), np.uint64((task.number + 1 << shift) - 1)
    return hashes[:, np.searchsorted(hashes[0], first) : np.searchsorted(hashes[0], last, side="right")]


def _kept_within(task: _MergeTask, rows: range) -> NDArray[np.int64]:
    """(2, num_nets) int64 nets of a range that are kept, ascending, and their weights."""
    kept = map_vector(task.kept_path)
    return kept[:, np.searchsorted(kept[0], rows.start) : np.searchsorted(kept[0], rows.stop)]


def _select(task: _SelectTask) -> tuple[int, Incidence]:
    contract = task.contracted
    net, weight = np.concatenate([_kept_within(merge, contract.rows) for merge in task.merged], axis=1)
    order = np.argsort(net, kind="stable")
    map_vector(task.net_weight_path, "r+")[task.first : task.first + len(net)] = weight[order]
    original = map_vector(contract.original_path)
    is_kept = np.zeros(len(original), dtype=np.bool_)
    is_kept[np.searchsorted(original, net)] = True
    with IncidenceWriter(contract.folder / "kept", np.dtype(task.pieces.dtype)) as writer:
        for block in task.pieces.blocks():
            size = np.diff(block.offset)
            writer.append(*select_nets(size, block.ids, is_kept[block.first_row : block.first_row + len(size)]))
        return contract.rows.start, writer.close()


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
