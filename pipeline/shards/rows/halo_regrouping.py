"""Halos on their way to the ranks that send them: regrouped from receivers to senders, in two passes.

Every receiver has a list of the vertices that it needs, sorted by sender; every sender needs its part of all of these
lists. If each sender's task read all lists, P ranks would open P^2 files. So receivers are *merged* in about sqrt(P)
groups, each into one file sorted by sender, and then senders are *collected* in as many groups, each into one file
sorted by sender, then receiver. No task opens more than about sqrt(P) files, and none holds more than P sqrt(P) counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.shards.rows.part_file import (
    PartColumn,
    mapped_part_file,
    read_part_offsets,
    read_parts,
)
from gnnloom.pipeline.shards.rows.row_halo import halo_file
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase_counts import PhaseCount
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.format.artifact import ArtifactWriter

_IDS = np.dtype(np.int64)


@dataclass(frozen=True)
class HaloGroups:
    """Groups of consecutive ranks, the same for receivers and senders."""

    num_parts: int

    @property
    def size(self) -> int:
        """Ranks of a group."""
        return math.isqrt(max(0, self.num_parts - 1)) + 1

    @property
    def count(self) -> int:
        return -(-self.num_parts // self.size)

    def ranks(self, group: int) -> range:
        """The ranks of a group."""
        return range(group * self.size, min((group + 1) * self.size, self.num_parts))

    def counts(self, rows: int) -> list[PhaseCount]:
        """What the two passes will do for one matrix.

        Args:
            rows: vertices in all halos together.
        """
        moved = 8 * rows + 8 * self.num_parts**2
        largest = moved // self.count
        # Offsets first, then entries.
        return [
            PhaseCount("merge halos", self.count, self.num_parts, self.size, 2, moved, moved, largest),
            PhaseCount("collect halos", self.count, self.count**2, self.count, 2, moved, moved, largest),
        ]


@dataclass(frozen=True)
class MergeHalosTask:
    """Merges the halos of a group of receivers into one file, sorted by sender, then receiver.

    Attributes:
        kind: kind of the matrix.
    """

    writer: ArtifactWriter
    kind: str
    groups: HaloGroups
    group: int

    @property
    def name(self) -> str:
        return f"merge-{self.kind}/{self.group:05d}"


@dataclass(frozen=True)
class CollectHalosTask(MergeHalosTask):
    """Collects what a group of senders sends into one file, sorted by sender, then receiver."""

    @property
    def name(self) -> str:
        return f"collect-{self.kind}/{self.group:05d}"


def regroup_halos(writer: ArtifactWriter, kind: str, num_parts: int, cluster: Cluster) -> None:
    """Regroup the halos of all ranks by sender, so that each sender reads one range of one file.

    Called between the pass that writes the halos and the one that calls :func:`sent_rows`.

    Args:
        kind: kind of the matrix.
    """
    groups = HaloGroups(num_parts)
    merge = [MergeHalosTask(writer, kind, groups, group) for group in range(groups.count)]
    run_missing("merge halos", cluster, writer, merge_halos, merge, "rows")
    collect = [CollectHalosTask(writer, kind, groups, group) for group in range(groups.count)]
    run_missing("collect halos", cluster, writer, collect_halos, collect, "rows")


def sent_rows(work: Path, kind: str, num_parts: int, sender: int) -> PartColumn:
    """What one rank sends.

    Args:
        work: the artifact's work folder.

    Returns:
        (num_rows,) int64 global ids by receiver, then in the order of the receiver's halo, and the (num_parts + 1,)
        offsets of the receivers.
    """
    groups = HaloGroups(num_parts)
    first = (sender - groups.ranks(sender // groups.size).start) * num_parts
    with OpenFiles(work) as files:
        collected = files.lane(_collected(kind, sender // groups.size))
        return read_parts(collected, first, first + num_parts, _IDS)


def merge_halos(task: MergeHalosTask) -> int:
    """Merge the halos of a group of receivers; returns their number of rows."""
    work, groups, receivers = task.writer.work, task.groups, task.groups.ranks(task.group)
    with task.writer.task(task.name), OpenFiles(work) as files:
        halos = [files.lane(halo_file(task.kind, receiver)) for receiver in receivers]
        counts = np.empty((groups.num_parts, len(receivers)), np.int64)
        for column, halo in enumerate(halos):
            counts[:, column] = np.diff(read_part_offsets(halo, 0, groups.num_parts))
        begin, path = _begins(counts), work / _merged(task.kind, task.group).path
        with mapped_part_file(path, _offsets(counts), _IDS) as merged:
            # One halo in memory at a time: its ids move to their places in the mapped file.
            for column, halo in enumerate(halos):
                _place(merged, read_parts(halo, 0, groups.num_parts, _IDS), begin[:, column])
    return int(counts.sum())


def collect_halos(task: CollectHalosTask) -> int:
    """Collect what a group of senders sends; returns the number of rows."""
    work, groups, senders = task.writer.work, task.groups, task.groups.ranks(task.group)
    with task.writer.task(task.name), OpenFiles(work) as files:
        merged = [(files.lane(_merged(task.kind, group)), groups.ranks(group)) for group in range(groups.count)]
        counts = np.empty((len(senders), groups.num_parts), np.int64)
        for source, receivers in merged:
            offset = read_part_offsets(source, *_pairs(senders, receivers))
            counts[:, receivers.start : receivers.stop] = np.diff(offset).reshape(len(senders), len(receivers))
        begin, path = _begins(counts), work / _collected(task.kind, task.group).path
        with mapped_part_file(path, _offsets(counts), _IDS) as collected:
            for source, receivers in merged:
                found = read_parts(source, *_pairs(senders, receivers), _IDS)
                _place(collected, found, begin[:, receivers.start : receivers.stop].reshape(-1))
    return int(counts.sum())


def _pairs(senders: range, receivers: range) -> tuple[int, int]:
    """First and last (exclusive) pair of these senders in the merged file of these receivers."""
    return senders.start * len(receivers), senders.stop * len(receivers)


def _place(target: NDArray[np.int64], pieces: PartColumn, begin: NDArray[np.int64]) -> None:
    """Copy each part of ``pieces`` to its place: part p to ``target`` from ``begin[p]`` on."""
    # The pieces follow each other, so one shift per piece moves its entries.
    shift = np.repeat(begin - pieces.offset[:-1] + pieces.offset[0], np.diff(pieces.offset))
    target[shift + np.arange(len(pieces.entry))] = pieces.entry


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Offsets of all pairs, by sender, then receiver, and the total."""
    return np.concatenate([[0], np.cumsum(counts.reshape(-1))]).astype(np.int64)


def _begins(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the rows of each [sender, receiver] begin."""
    return _offsets(counts)[:-1].reshape(counts.shape)


def _merged(kind: str, group: int) -> Lane:
    return Lane(f"merged-{kind}/{group:05d}")


def _collected(kind: str, group: int) -> Lane:
    return Lane(f"collected-{kind}/{group:05d}")
