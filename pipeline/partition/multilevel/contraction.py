"""Contraction: clusters become vertices, nets lose repeated pins, and nets with the same pins become one.

Tasks contract ranges of nets, find identical ones by ranges of a hash, and write what is kept.  Hashes, and the nets
that are kept, are in lanes, so that tasks that read the lanes of all others open few files.  The nets of the new
vertices come from an external sort of (vertex, net) pairs.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.external_sort.merge_levels import most_sources
from gnnloom.pipeline.partition.model.hypergraph import Hypergraph, pin_hash, select_nets
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import Clusters, DiskHypergraph, load_nets
from gnnloom.pipeline.partition.multilevel.incidence import (
    Incidence,
    IncidenceBlock,
    IncidenceWriter,
    StatedLists,
    join_lists,
    join_phase,
    stated_pieces,
)
from gnnloom.pipeline.partition.multilevel.pieces import (
    NET_TASKS,
    NUMBER_BYTES,
    RangeTask,
    create_vector,
    in_order,
    net_tasks,
    phase_over,
    range_pieces,
    store_vector,
)
from gnnloom.pipeline.partition.multilevel.transpose_incidence import transpose_incidence
from gnnloom.pipeline.partition.partitioner import LevelSteps
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.run_list import LaneRuns
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.unrecorded import UnrecordedShuffle
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.phase import Phase, results
from gnnloom.storage.disk.numpy_files import map_array
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import index_dtype

#: Bytes for each net of a task: hash and number as they are collected, joined and sorted.
_NET_BYTES = 80
#: Bytes of the hash and number of a net in a lane; every task that finds identical nets reads a range of these. Bytes
#: of the number and weight of a kept net.
_HASH_BYTES = 16
#: Columns of the arrays that tasks route: the hash of the pins of a net, and the net; a net that is kept, and its
#: weight.
_HASHES = (Column("hash", "uint64"), Column("net", "int64"))
_KEPT = (Column("net", "int64"), Column("weight", "int64"))


@dataclass(frozen=True)
class _Contraction:
    """Common fields of the contraction tasks.

    Attributes:
        folder: for the files of the result.
        ranges: ranges of nets; a task contracts a range, and a later task writes the kept nets of the range.
        hashes: hash of the pins and number of the nets that have two or more pins left, by range of hashes.
        kept: number and weight of the first of the nets with the same pins, ascending, by range of nets.
    """

    hypergraph: DiskHypergraph
    clusters: Clusters
    folder: Path
    ranges: tuple[range, ...]
    hashes: UnrecordedShuffle
    kept: UnrecordedShuffle

    @classmethod
    def of(cls, hypergraph: DiskHypergraph, clusters: Clusters, folder: Path, memory: int) -> _Contraction:
        """Divide the nets, and the hashes, among tasks of ``memory`` bytes."""
        num_nets = hypergraph.num_nets
        room = working_memory(memory) - _block_bytes(hypergraph)
        fewest = -(-num_nets // max(1, room // _NET_BYTES))
        tasks = net_tasks(hypergraph.num_pins, hypergraph.steps)
        merges = 1 << (max(min(NET_TASKS, tasks), fewest) - 1).bit_length()
        # More than 16 ranges of nets only if every range of hashes has 64 KiB or more in the lane of each.
        scratch = hypergraph.scratch
        most = most_sources(_HASH_BYTES * num_nets, merges, scratch)
        ranges = tuple(hypergraph.nets.ranges(max(fewest, min(tasks, most))))
        hashes = UnrecordedShuffle.named(folder, "hashes", len(ranges), _HASHES, merges, scratch)
        kept = UnrecordedShuffle.named(folder, "kept", merges, _KEPT, len(ranges), scratch)
        return cls(hypergraph, clusters, folder, ranges, hashes, kept)

    @property
    def merges(self) -> int:
        """Tasks that find identical nets, each in a range of hashes; a power of two."""
        return self.hashes.shuffle.num_positions

    def folder_of(self, number: int) -> Path:
        """For the files of a range of nets."""
        return self.folder / f"range-{number:05d}"

    def original_path(self, number: int) -> Path:
        """File of the (num_kept,) int64 numbers of the nets of a range that have two or more pins left, ascending."""
        return self.folder_of(number) / "original.npy"

    @property
    def net_weight_path(self) -> Path:
        """File of the (num_nets,) int64 weight of each net that is kept."""
        return self.folder / "net-weight.npy"


@dataclass(frozen=True)
class ContractedNets:
    """The nets of the hypergraph with clusters as vertices.

    Attributes:
        nets: the pins of every net.
        net_weight_path: file of the (num_nets,) int64 weight of each net.
        steps: sizes of the steps of the hypergraph that was contracted.
    """

    folder: Path
    clusters: Clusters
    nets: Incidence
    net_weight_path: Path
    steps: LevelSteps

    def load(self) -> Hypergraph:
        """Load the hypergraph into memory, without nets of one pin."""
        return load_nets(self.nets, np.array(map_array(self.clusters.weight_path)), map_array(self.net_weight_path))

    def on_disk(self, memory: int, cluster: Cluster) -> DiskHypergraph:
        """Complete the hypergraph on disk; sorts the nets of the new vertices in ``memory`` bytes for each task."""
        clusters = self.clusters
        folder, count = self.folder / "vertices", clusters.num_clusters
        vertices = transpose_incidence(self.nets, count, folder, memory, cluster, self.steps)
        sizes = clusters.total_weight, clusters.heaviest, cluster.scratch, self.steps
        return DiskHypergraph(self.nets, vertices, clusters.weight_path, self.net_weight_path, *sizes)


def contract_nets(hypergraph: DiskHypergraph, clusters: Clusters, folder: Path, cluster: Cluster) -> ContractedNets:
    """Make the clusters of a hypergraph the vertices of a smaller one.

    Args:
        hypergraph: to contract.
        clusters: of its vertices.
        folder: for the new hypergraph and temporary files.
        cluster: runs the tasks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    work = _Contraction.of(hypergraph, clusters, folder, cluster.memory)
    work.hashes.create()
    found = sorted(results(_contract_phase(work), cluster), key=lambda each: each[0])
    pieces = tuple(nets for *_, nets in found)
    work.hashes.list_runs((number, runs) for number, runs, _ in found)
    work.kept.create()
    work.kept.list_runs(results(_merge_phase(work), cluster))
    work.hashes.remove()
    with OpenFiles(folder) as files:
        ends = np.cumsum(work.kept.rows(files).num_rows()).tolist()
    create_vector(work.net_weight_path, (ends[-1],), np.dtype(np.int64))
    selected = in_order(results(_select_phase(work, pieces, ends[-1], [0, *ends]), cluster))
    work.kept.remove()
    nets = join_lists("join nets", selected, folder / "nets", cluster)
    for number in range(len(work.ranges)):
        shutil.rmtree(work.folder_of(number))
    return ContractedNets(folder, clusters, nets, work.net_weight_path, hypergraph.steps)


def contract_phases(hypergraph: DiskHypergraph, coarse: DiskHypergraph, memory: int) -> list[Phase]:
    """The phases of :func:`contract_nets`; before identical nets are found, at most all nets and pins are left.

    Args:
        coarse: what is left.
    """
    work = _Contraction.of(hypergraph, Clusters(Path(), Path(), coarse.num_vertices, 0, 0), Path(), memory)
    count = len(work.ranges)
    contracted = StatedLists.of(hypergraph.num_nets, hypergraph.num_pins, coarse.num_vertices)
    select = _select_phase(work, stated_pieces(contracted, count), coarse.num_nets)
    join = join_phase("join nets", stated_pieces(coarse.nets, count), coarse.nets)
    return [_contract_phase(work), _merge_phase(work), select, join]


def _contract_phase(work: _Contraction) -> Phase:
    """Contract ranges of nets; a task holds a hash and a number for each net."""
    hypergraph, num_nets = work.hypergraph, work.hypergraph.num_nets
    labels = hypergraph.label_bytes * hypergraph.num_pins
    pins = index_dtype(work.clusters.num_clusters).itemsize * hypergraph.num_pins
    # Offsets, numbers and hashes.
    writes = pins + (2 * NUMBER_BYTES + _HASH_BYTES) * num_nets
    reads = hypergraph.nets.num_bytes + labels
    return phase_over(
        work.ranges, "contract nets", _contract_nets, work, reads=reads, writes=writes, files=3,
        row_bytes=_NET_BYTES, buffers=_block_bytes(hypergraph), at_most=True,
    )  # fmt: skip


def _merge_phase(work: _Contraction) -> Phase:
    """Find identical nets, by range of hashes."""
    hypergraph, numbers = work.hypergraph, range_pieces(range(work.merges), work.merges)
    reads = _HASH_BYTES * hypergraph.num_nets + hypergraph.net_weight_bytes
    files, lanes, size = int(hypergraph.is_weighted), [len(work.ranges)], _HASH_BYTES * hypergraph.num_nets
    name, held = "find identical nets", _NET_BYTES * -(-hypergraph.num_nets // work.merges)
    return phase_over(
        numbers, name, _merge_identical, work,
        reads=reads, writes=size, files=files, lanes=lanes, buffers=held, at_most=True,
        scratch=hypergraph.scratch,
    )  # fmt: skip


def _select_phase(
    work: _Contraction, pieces: Sequence[Incidence], num_kept: int, firsts: Sequence[int] | None = None
) -> Phase:
    """Write the nets that are kept of each range, and their weights.

    Args:
        pieces: the nets of each range after contraction.
        num_kept: nets that are kept.
        firsts: number of the first net of each range that is kept.
    """
    size, weights, selection = sum(piece.num_bytes for piece in pieces), NUMBER_BYTES * num_kept, (work, tuple(pieces))
    # Numbers of nets, and numbers and weights of kept nets.
    reads, writes = size + NUMBER_BYTES * work.hypergraph.num_nets + 2 * weights, size + weights
    return phase_over(
        work.ranges, "select nets", _select, selection,
        reads=reads, writes=writes, files=3, lanes=[work.merges], firsts=firsts, scratch=work.hypergraph.scratch,
        # Numbers, weights and positions of kept nets, in two orders.
        row_bytes=6 * NUMBER_BYTES, buffers=_block_bytes(work.hypergraph), at_most=True,
    )  # fmt: skip


def _block_bytes(hypergraph: DiskHypergraph) -> int:
    """Bytes of a block of nets, and of what is left of it: pins, offsets, numbers and hashes."""
    return hypergraph.nets.block_bytes(row_bytes=3 * NUMBER_BYTES, id_bytes=hypergraph.label_bytes + 1)


def _contract_nets(task: RangeTask[_Contraction]) -> tuple[int, LaneRuns, Incidence]:
    """Contract a range of nets; each keeps its new pins in the order in which they first occur."""
    work = task.work
    label, num_clusters = work.clusters.label, work.clusters.num_clusters
    originals, hashes = [], []
    with IncidenceWriter(work.folder_of(task.number) / "contracted", index_dtype(num_clusters)) as writer:
        for block in work.hypergraph.nets.blocks(task.rows):
            offset, pins, original, hashed = _contract_block(block, label, int(np.diff(block.offset).max()))
            writer.append(offset, pins)
            originals.append(original)
            hashes.append(hashed)
        nets = writer.close()
    original, hashed = np.concatenate(originals), np.concatenate(hashes)
    store_vector(work.original_path(task.number), original)
    # The stable order keeps the nets with one hash ascending.
    order = np.argsort(hashed, kind="stable")
    hashed = hashed[order]
    # The number of ranges of hashes is a power of two.
    firsts = np.arange(work.merges, dtype=np.uint64) << np.uint64(65 - work.merges.bit_length())
    offsets = np.append(np.searchsorted(hashed, firsts), len(hashed))
    with work.hashes.routed(task.number) as out:
        out.add(Index.of_offsets(offsets), {"hash": hashed, "net": original[order]})
    return task.number, out.written, nets


@kernel
def _contract_block(
    block: IncidenceBlock, label: NDArray[Any], most_pins: int
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64], NDArray[np.uint64]]:
    """Return offsets, pins, numbers and hashes of the nets that have two or more pins left.

    Args:
        most_pins: pins of the largest net of the block.
    """
    offset, pin = block.offset, block.ids
    new_offset = np.zeros(len(offset), np.int64)
    new_pin = np.empty(len(pin), label.dtype)
    original = np.empty(len(offset) - 1, np.int64)
    hashed = np.empty(len(offset) - 1, np.uint64)
    # A hash table of the clusters of one net; an entry of another net counts as free, so nothing is cleared.
    size = 2
    while size < 2 * most_pins:
        size *= 2
    seen, seen_in = np.empty(size, np.int64), np.empty(size, np.int64)
    for free in range(size):
        seen_in[free] = -1
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
        original[kept], hashed[kept] = block.first_row + net, total
        kept += 1
        new_offset[kept] = end
    return new_offset[: kept + 1], new_pin[:end], original[:kept], hashed[:kept]


def _merge_identical(task: RangeTask[_Contraction]) -> tuple[int, LaneRuns]:
    """Keep the first of the nets with the same pins, with the sum of their weights."""
    work = task.work
    with OpenFiles(work.folder) as files:
        rows = work.hashes.rows(files).read(task.number, task.number + 1)
        hashed, original = rows.column("hash"), rows.column("net")
    # Ranges of nets come in order, so among equal hashes the stable order puts the net with the lowest number first.
    order = np.argsort(hashed, kind="stable")
    path = work.hypergraph.net_weight_path
    weight = map_array(path)[original] if path else np.ones_like(original)
    is_first = np.zeros(len(hashed), dtype=np.bool_)
    _collect_weights(hashed, order, weight, is_first)
    net, weight = original[is_first], weight[is_first]
    order = np.argsort(net, kind="stable")
    offsets = np.searchsorted(net, [0, *(nets.stop for nets in work.ranges)], sorter=order)
    with work.kept.routed(task.number) as out:
        out.add(Index.of_offsets(offsets), {"net": net[order], "weight": weight[order]})
    return task.number, out.written


def _select(task: RangeTask[tuple[_Contraction, tuple[Incidence, ...]]]) -> tuple[int, Incidence]:
    work, contracted = task.work[0], task.work[1][task.number]
    with OpenFiles(work.folder) as files:
        rows = work.kept.rows(files).read(task.number, task.number + 1)
        net, weight = rows.column("net"), rows.column("weight")
    order = np.argsort(net, kind="stable")
    map_array(work.net_weight_path, "r+")[task.first : task.first + len(net)] = weight[order]
    original = map_array(work.original_path(task.number))
    is_kept = np.zeros(len(original), dtype=np.bool_)
    is_kept[np.searchsorted(original, net)] = True
    with IncidenceWriter(work.folder_of(task.number) / "kept", np.dtype(contracted.dtype)) as writer:
        for block in contracted.blocks():
            size = np.diff(block.offset)
            writer.append(*select_nets(size, block.ids, is_kept[block.first_row : block.first_row + len(size)]))
        return task.number, writer.close()


@kernel
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
