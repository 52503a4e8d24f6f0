"""Finds the best targets of vertices with a trained run, on any number of ranks, and keeps the pairs in files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.disk.copy_checksums import ChecksumFile, check_files, write_checksums
from gnnloom.storage.disk.numpy_files import load_array
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.meters import ProgressMeter
from gnnloom.storage.runs.run import Run
from gnnloom.storage.shards.known_pairs import SOURCES_AT_ONCE, known_targets
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.exchange import broadcast_array, collect
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.links.scoring import Lists
from gnnloom.trainer.training.pair_scores import PairScorer

#: Number of pairs in memory at a time when files are read.
_ROWS: Final = 1 << 18
#: Folder of the file with the vertices whose targets are wanted, and of its checksums; without it, all vertices are.
_SOURCES, _VERTICES = "sources", "vertices.npy"


class FoundPairs:
    """Pairs and their scores, in two files of a folder; a third one has the number of pairs of each source.

    Reads are compared with the checksums of the writer, which may be another process.
    """

    def __init__(self, folder: Path, num_scores: int, dtype: np.dtype[Any]) -> None:
        self._pair, self._score, self._width, self._dtype = folder / "pairs", folder / "scores", num_scores, dtype
        self.count, self._folder = folder / "counts", folder
        self._files: list[ChecksumFile] = []

    @contextmanager
    def written(self) -> Iterator[None]:
        """Open the files inside the block."""
        with ExitStack() as held:
            self._files = [held.enter_context(ChecksumFile(path)) for path in self._paths]
            yield
            contents = [file.content() for file in self._files]
        write_checksums(self._folder, {path.name: each for path, each in zip(self._paths, contents, strict=True)})

    @property
    def _paths(self) -> list[Path]:
        return [self._pair, self._score, self.count]

    def check(self) -> None:
        """Compare the files with their checksums; call it after reading them.

        Raises:
            CorruptError: one has changed.
        """
        check_files(self._folder, {path.name: None for path in self._paths})

    def add(self, pairs: NDArray[np.int64], scores: NDArray[Any], counts: NDArray[np.int64] | None = None) -> None:
        """Add (num_pairs, 2) pairs, their scores, and optionally the number of pairs of each source."""
        for file, array in zip(self._files, (pairs, scores, np.empty(0) if counts is None else counts), strict=True):
            file.write(np.ascontiguousarray(array).tobytes())

    @property
    def length(self) -> int:
        """Number of pairs in the files, once the files are written."""
        return self._pair.stat().st_size // 16

    def pieces(self) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """Yield (num_pairs, 2) pairs and (num_pairs, num_scores) scores, piece by piece."""
        with self._pair.open("rb") as pair, self._score.open("rb") as score:
            for start in range(0, self.length, _ROWS):
                count = min(_ROWS, self.length - start)
                pairs = np.fromfile(pair, np.int64, 2 * count).reshape(count, 2)
                yield pairs, np.fromfile(score, self._dtype, self._width * count).reshape(count, self._width)
        self.check()


class GivenSources:
    """The vertices whose targets are wanted, in a file that the command writes and the first rank reads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / _SOURCES

    def write(self, vertices: NDArray[np.int64]) -> None:
        """Write (num_sources,) vertices."""
        self._folder.mkdir()
        with ChecksumFile(self._folder / _VERTICES) as file:
            np.save(file, vertices, allow_pickle=False)
        write_checksums(self._folder, {_VERTICES: file.content()})

    def map(self) -> NDArray[np.int64] | None:
        """The vertices; None if the targets of all vertices are wanted."""
        return load_array(self._folder / _VERTICES, "r") if self._folder.exists() else None

    def check(self) -> None:
        """Compare the file with its checksums; call it after reading it.

        Raises:
            CorruptError: it has changed.
        """
        if self._folder.exists():
            check_files(self._folder, {_VERTICES: None})


def find_targets(
    comm: Communicator,
    dataset: Dataset,
    run: Run,
    folder: Path,
    count: int,
    threads: int,
    decoder: str | None,
) -> None:
    """Find the best targets of vertices with the predictions of a run. Collective.

    Args:
        folder: the first rank reads the vertices in it, and writes the pairs to it, as :class:`FoundPairs`.
        count: number of targets of each vertex.
        threads: of this rank.
        decoder: as for :meth:`~gnnloom.trainer.training.pair_scores.PairModel.of`.

    Raises:
        CollectiveError: the run has no predictions of pairs, or the checkpoint that made them is gone.
    """
    with ExitStack() as held:
        scorer = together(comm, lambda: held.enter_context(PairScorer.open(dataset, run, comm, threads, decoder)))
        graph, given = together(comm, lambda: dataset.message_edges(scorer.links)), GivenSources(folder)
        sources = together(comm, lambda: given.map() if comm.rank == 0 else None)
        out = FoundPairs(folder, 1, scorer.vector.dtype)
        if comm.rank == 0:
            held.enter_context(out.written())
        # No vertex can have more targets.
        for some, target, score in best_targets(scorer, graph, sources, min(count, scorer.links.target_vertices)):
            out.add(*found_pairs(some, target, score))
        together(comm, lambda: given.check() if comm.rank == 0 else None)


def found_pairs(
    sources: NDArray[np.int64], target: NDArray[np.int64], score: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
    """(num_pairs, 2) pairs, their scores, and the number of pairs of each source, from :func:`best_targets`."""
    there = target >= 0
    counts = there.sum(1)
    return np.stack([np.repeat(sources, counts), target[there]], 1), score[there], counts


def read_targets(folder: Path, count: int, dtype: np.dtype[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """(num_sources, count) targets and scores that :func:`find_targets` wrote, in memory; -1 and -inf for none."""
    found = FoundPairs(folder, 1, dtype)
    counts, pieces = np.fromfile(found.count, np.int64), list(found.pieces())
    # The counts have been compared with their checksums, so they fit the pairs.
    there = np.arange(count) < counts[:, None]
    target, score = np.full(there.shape, -1, np.int64), np.full(there.shape, -np.inf, dtype)
    target[there] = np.concatenate([np.empty(0, np.int64), *(pairs[:, 1] for pairs, _ in pieces)])
    score[there] = np.concatenate([np.empty(0, dtype), *(scores[:, 0] for _, scores in pieces)])
    return target, score


def best_targets(
    scorer: PairScorer, graph: BlockMatrix, sources: NDArray[np.int64] | None, count: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]]:
    """The best targets of some vertices, on the first rank. Collective: every rank must consume the whole iterator.

    Each rank finds the targets of a range of every part of the sources, and sends them to the first rank. The result
    has the same bits on any number of ranks; see :func:`gnnloom.trainer.links.all_targets.top_targets`.

    Args:
        graph: the message graph of the links, or their relation in it. Its edges and all pairs of the links are
            excluded; see :mod:`gnnloom.storage.shards.known_pairs`.
        sources: (num_sources,) int64, read on the first rank only; None for all vertices.

    Yields:
        On the first rank, some sources in order, their (num_sources, count) best targets, and the scores of the
        targets; at least once. On other ranks nothing.

    Raises:
        InputError: a source is not a vertex, or the decoder gives several scores.
    """
    comm, place = scorer.comm, scorer.decoder.place
    stated = int(comm.gather_numbers([-1 if sources is None else len(sources)])[0, 0])
    total, step = scorer.links.source_vertices if stated < 0 else stated, SOURCES_AT_ONCE * comm.size
    meter = ProgressMeter("best targets", max(1, -(-total // step)), "vertices") if comm.rank == 0 else None
    for start in range(0, max(1, total), step):
        some = np.arange(start, min(start + step, total))
        if stated >= 0:
            if comm.rank == 0 and sources is not None:
                some = np.array(sources[start : start + step], np.int64)
            some = broadcast_array(comm, some, 0, place, Kind.PREDICTION)
        # All ranks have the same sources, and see the same error.
        scorer.check_sources(some)
        spans = [split_range(len(some), comm.size, rank) for rank in range(comm.size)]
        mine = some[slice(*spans[comm.rank])]
        vertex, score = scorer.top(mine, count, Lists(*known_targets(graph, scorer.links, mine)))
        if comm.rank == 0:
            yield mine, vertex, score
        shapes = [[(b - a, count)] * 2 for a, b in spans]
        for rank, (theirs, scores) in collect(comm, (vertex, score), shapes, place, 0, Kind.PREDICTION):
            if spans[rank][0] < spans[rank][1]:
                yield some[slice(*spans[rank])], theirs, scores
        if meter is not None:
            meter.advance(len(some))
    together(comm, scorer.copy.check)
