"""Contraction: clusters become vertices, nets lose repeated pins, and nets with the same pins become one.

Tasks contract ranges of nets, find identical ones by ranges of a hash, and write what is kept.  Hashes, and the nets
that are kept, are in lanes, so that the tasks that read those of all others open few files.  The nets of the new
vertices come from an external sort of (vertex, net) pairs.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.partition.model.hypergraph import Hypergraph
from gnnloom.pipeline.partition.model.net_lists import pin_hash, select_nets
from gnnloom.pipeline.partition.multilevel.clusters import Clusters
from gnnloom.pipeline.partition.multilevel.contraction_sizes import ContractionSizes
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph, load_nets
from gnnloom.pipeline.partition.multilevel.incidence import Incidence, IncidenceWriter
from gnnloom.pipeline.partition.multilevel.join_lists import join_lists
from gnnloom.pipeline.partition.multilevel.transpose_incidence import transpose_incidence
from gnnloom.pipeline.partition.multilevel.vectors import create_vector, map_vector, store_vector
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.run_list import LaneRuns
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.unrecorded import UnrecordedShuffle
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.matrix.csr import index_dtype

#: Columns of what tasks route: the hash of the pins of a net, and the net; a net that is kept, and its weight.
_HASHES = (Column("hash", "uint64"), Column("net", "int64"))
_KEPT = (Column("net", "int64"), Column("weight", "int64"))


@dataclass(frozen=True)
class _ContractTask:
    """Contracts a range of nets; holds a hash and a number for each of them.

    Attributes:
        hashes: hash of the pins and number of the nets that have two or more pins left, by range of hashes.
        number: of the task.
        folder: for the files of this task.
    """

    nets: Incidence
    rows: range
    clusters: Clusters
    hashes: UnrecordedShuffle
    number: int
    folder: Path

    @property
    def original_path(self) -> Path:
        """File of the (num_kept,) int64 numbers of the nets that have two or more pins left, ascending."""
        return self.folder / "original.npy"


@dataclass(frozen=True)
class _MergeTask:
    """Finds identical nets with hashes in a range.

    Attributes:
        number: of the task, and of its range of hashes.
        nets: ranges of nets.
        kept: number and weight of the first of the nets with the same pins, ascending, by range of nets.
    """

    hashes: UnrecordedShuffle
    net_weight_path: Path | None
    number: int
    nets: tuple[range, ...]
    kept: UnrecordedShuffle


@dataclass(frozen=True)
class _SelectTask:
    """Writes the nets that are kept of a range, and their weights.

    Attributes:
        pieces: the nets of this range after contraction.
        first: number of the first net that is kept.
    """

    contracted: _ContractTask
    pieces: Incidence
    kept: UnrecordedShuffle
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
    ranges = tuple(hypergraph.nets.ranges(sizes.num_ranges))
    hashes = UnrecordedShuffle.create(folder, "hashes", len(ranges), _HASHES, 1 << sizes.hash_bits)
    contracts = [
        _ContractTask(hypergraph.nets, rows, clusters, hashes, number, folder / f"range-{number:05d}")
        for number, rows in enumerate(ranges)
    ]
    contracted = list(cluster.map(_contract_nets, contracts))
    pieces = {number: nets for number, _, nets in contracted}
    hashes.list_runs((number, runs) for number, runs, _ in contracted)
    num_merges = 1 << sizes.hash_bits
    kept = UnrecordedShuffle.create(folder, "kept", num_merges, _KEPT, len(ranges))
    merges = [_MergeTask(hashes, hypergraph.net_weight_path, number, ranges, kept) for number in range(num_merges)]
    kept.list_runs(cluster.map(_merge_identical, merges))
    hashes.remove()
    with OpenFiles(folder) as files:
        ends = np.cumsum(kept.rows(files).num_rows()).tolist()
    net_weight_path = folder / "net-weight.npy"
    create_vector(net_weight_path, (ends[-1],), np.dtype(np.int64))
    selects = [
        _SelectTask(contract, pieces[contract.number], kept, first, net_weight_path)
        for contract, first in zip(contracts, [0, *ends], strict=False)
    ]
    selected = dict(cluster.map(_select, selects))
    kept.remove()
    nets = join_lists([selected[contract.number] for contract in contracts], folder / "nets", cluster)
    for contract in contracts:
        shutil.rmtree(contract.folder)
    return ContractedNets(folder, clusters, nets, net_weight_path)


def _contract_nets(task: _ContractTask) -> tuple[int, LaneRuns, Incidence]:
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
    hashed = hashed[order]
    first = _first_hashes(task.hashes.shuffle.num_positions)
    offsets = np.append(np.searchsorted(hashed, first), len(hashed))
    with task.hashes.routed(task.number) as out:
        out.add(Index.of_offsets(offsets), {"hash": hashed, "net": original[order]})
    return task.number, out.written, nets


def _first_hashes(num_ranges: int) -> NDArray[np.uint64]:
    """(num_ranges,) uint64 at which ranges of hashes begin, whose number is a power of two."""
    return np.arange(num_ranges, dtype=np.uint64) << np.uint64(65 - num_ranges.bit_length())


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


def _merge_identical(task: _MergeTask) -> tuple[int, LaneRuns]:
    """Keep the first net of those with the same pins, with the weight of all of them."""
    with OpenFiles(task.hashes.work) as files:
        rows = task.hashes.rows(files).read(task.number, task.number + 1)
        hashed, original = rows.column("hash"), rows.column("net")
    # Ranges of nets come in order, so among equal hashes the stable order puts the net with the lowest number first.
    order = np.argsort(hashed, kind="stable")
    weight = map_vector(task.net_weight_path)[original] if task.net_weight_path else np.ones_like(original)
    is_first = np.zeros(len(hashed), dtype=np.bool_)
    _collect_weights(hashed, order, weight, is_first)
    net, weight = original[is_first], weight[is_first]
    order = np.argsort(net, kind="stable")
    offsets = np.searchsorted(net, [0, *(nets.stop for nets in task.nets)], sorter=order)
    with task.kept.routed(task.number) as out:
        out.add(Index.of_offsets(offsets), {"net": net[order], "weight": weight[order]})
    return task.number, out.written


def _select(task: _SelectTask) -> tuple[int, Incidence]:
    contract = task.contracted
    with OpenFiles(task.kept.work) as files:
        rows = task.kept.rows(files).read(contract.number, contract.number + 1)
        net, weight = rows.column("net"), rows.column("weight")
    order = np.argsort(net, kind="stable")
    map_vector(task.net_weight_path, "r+")[task.first : task.first + len(net)] = weight[order]
    original = map_vector(contract.original_path)
    is_kept = np.zeros(len(original), dtype=np.bool_)
    is_kept[np.searchsorted(original, net)] = True
    with IncidenceWriter(contract.folder / "kept", np.dtype(task.pieces.dtype)) as writer:
        for block in task.pieces.blocks():
            size = np.diff(block.offset)
            writer.append(*select_nets(size, block.ids, is_kept[block.first_row : block.first_row + len(size)]))
        return contract.number, writer.close()


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
