"""Scores of pairs, and the best targets of vertices, as tables for other programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage import Dataset, Graph
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.own_folder import own_folder
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.interop.export import VertexIds, block_entries
from gnnloom.workflows.interop.given_vertices import open_pairs, read_pairs, read_vertices
from gnnloom.workflows.interop.tables import ExportedColumn, Table

if TYPE_CHECKING:
    from gnnloom.trainer.links.scoring import Lists
    from gnnloom.trainer.training.pair_scores import PairScorer

#: Sources whose targets are looked for at a time. The edges are read once for each of these parts, which takes much
#: less time than the scores of so many sources with all vertices.
_SOURCES: Final = 1 << 14
#: Pairs of a table in memory at a time.
_ROWS: Final = 1 << 18


@dataclass(frozen=True)
class Wanted:
    """What to predict of pairs.

    Attributes:
        pairs: file with the pairs to score; or else
        top: number of targets to find for each vertex.
        of: file with the vertices; None for all.
    """

    pairs: Path | None = None
    top: int | None = None
    of: Path | None = None

    def __bool__(self) -> bool:
        return self.pairs is not None or self.top is not None

    def check_together(self) -> None:
        """Check that the wishes go together.

        Raises:
            InputError: they do not.
        """
        if self.pairs is not None and self.top is not None:
            raise InputError("pairs and top: choose one of them")
        if self.of is not None and self.top is None:
            raise InputError("of: lists the vertices whose best targets are wanted; give their number with top")
        if self.top is not None and self.top < 1:
            raise InputError(f"top: expected a number of targets from 1 on, found {self.top}")

    def check(self, run: Run) -> None:
        """Check that the wishes go together, and that a run predicts them.

        Raises:
            NotFoundError: there is no such file.
            InputError: they do not, or it does not.
        """
        self.check_together()
        if not self:
            return
        from gnnloom.trainer.config.train_config import TrainConfig
        from gnnloom.trainer.training.pair_scores import check_on_pairs, check_ranks

        task = check_on_pairs(TrainConfig.of_run(run), run.path)
        if self.top is not None:
            check_ranks(task)
        if self.pairs is not None:
            open_pairs(self.pairs)
        if self.of is not None and not self.of.exists():
            raise NotFoundError(f"{self.of}: no such file")


@contextmanager
def scored_pairs(dataset: Dataset, run: Run, wanted: Wanted) -> Iterator[Table]:
    """Score pairs with the stored predictions of a run; the table can be read inside the block.

    What is computed goes to temporary files, so that memory grows neither with the pairs nor with the vertices, but for
    a few bytes for each vertex.

    Raises:
        NotFoundError: the run has no predictions, or a file does not exist.
        InputError: the run predicts vertices, or an id in a file is not one of the graph.
    """
    from gnnloom.trainer.training.pair_scores import PairScorer

    with PairScorer.open(dataset, run) as scorer, own_folder() as folder:
        graph = dataset.graph(scorer.links.graph)
        found = _Found(folder, scorer.decoder.num_outputs, scorer.vector.dtype)
        with found.written():
            if wanted.top is None:
                for pairs in read_pairs(graph, wanted.pairs or Path()):
                    found.add(pairs, scorer.scores(pairs))
            else:
                given = np.arange(graph.num_vertices) if wanted.of is None else read_vertices(graph, wanted.of)
                # No vertex has more targets.
                count = min(wanted.top, graph.num_vertices)
                for sources, target, score in _best(scorer, graph, given, count):
                    there = target >= 0
                    found.add(np.stack([np.repeat(sources, there.sum(1)), target[there]], 1), score[there])
        yield _table(scorer, graph, found, VertexIds.map(graph, folder))


def best_targets(
    scorer: PairScorer, graph: Graph, sources: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The best targets of some vertices, in memory; see :meth:`gnnloom.workflows.api.run.Run.top`.

    Raises:
        InputError: they are not vertices, or ``count`` is not positive.
    """
    if sources.ndim != 1 or (sources.size and sources.dtype.kind not in "iu"):
        raise InputError(f"vertices: expected (num_vertices,) integers, found {sources.dtype} of shape {sources.shape}")
    Wanted(top=count).check_together()
    parts = list(_best(scorer, graph, sources.astype(np.int64), count))
    return tuple(np.concatenate([part[which] for part in parts]) for which in (1, 2))  # type: ignore[return-value]


def _best(
    scorer: PairScorer, graph: Graph, sources: NDArray[np.int64], count: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]]:
    """Some sources, (num_sources, count) their best targets, and the scores of these; at least once."""
    for start in range(0, max(1, len(sources)), _SOURCES):
        some = sources[start : start + _SOURCES]
        scorer.check_vertices(some)
        yield some, *scorer.top(some, count, linked_targets(graph, some))


def linked_targets(graph: Graph, sources: NDArray[np.int64]) -> Lists:
    """The vertices to which edges lead from some vertices; reads all edges once, some at a time.

    Args:
        sources: (num_sources,) int64, any of them several times.
    """
    from gnnloom.trainer.links.scoring import Lists

    wanted, number = np.unique(sources, return_inverse=True)
    is_wanted = np.zeros(graph.num_vertices, np.bool_)
    is_wanted[wanted] = True
    parts = [np.empty((2, 0), np.int64)]
    for block in range(graph.num_blocks):
        for row, column, *_ in block_entries(graph, block):
            chosen = is_wanted[column]
            parts.append(np.stack([np.searchsorted(wanted, column[chosen]), row[chosen]]))
    found = np.concatenate(parts, 1)
    found = found[:, np.argsort(found[0], kind="stable")]
    bounds = np.searchsorted(found[0], np.arange(len(wanted) + 1))
    return Lists.of([found[1, bounds[each] : bounds[each + 1]] for each in number.tolist()])


class _Found:
    """Pairs and their scores, in files of their own."""

    def __init__(self, folder: Path, num_scores: int, dtype: np.dtype[Any]) -> None:
        self._pair, self._score, self._width, self._dtype = folder / "pairs", folder / "scores", num_scores, dtype
        self._files: list[IO[bytes]] = []
        self.length = 0

    @contextmanager
    def written(self) -> Iterator[None]:
        """Open the files inside the block."""
        with ExitStack() as held:
            self._files = [held.enter_context(path.open("wb")) for path in (self._pair, self._score)]
            yield

    def add(self, pairs: NDArray[np.int64], scores: NDArray[Any]) -> None:
        """Add (num_pairs, 2) pairs and their scores."""
        for file, array in zip(self._files, (pairs, scores), strict=True):
            file.write(np.ascontiguousarray(array).tobytes())
        self.length += len(pairs)

    def pieces(self) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """(num_pairs, 2) pairs and (num_pairs, num_scores) scores, some at a time."""
        with self._pair.open("rb") as pair, self._score.open("rb") as score:
            for start in range(0, self.length, _ROWS):
                count = min(_ROWS, self.length - start)
                pairs = np.fromfile(pair, np.int64, 2 * count).reshape(count, 2)
                yield pairs, np.fromfile(score, self._dtype, self._width * count).reshape(count, self._width)


def _table(scorer: PairScorer, graph: Graph, found: _Found, ids: VertexIds) -> Table:
    dtype, several = scorer.vector.dtype, scorer.decoder.num_outputs
    match scorer.links.kind if not scorer.task.losses else "link":
        case "class":
            columns = [ExportedColumn("class", np.dtype(np.int32)), ExportedColumn("score", dtype, several)]
        case "number":
            columns = [ExportedColumn("number", dtype)]
        case _:
            columns = [ExportedColumn("score", dtype)]
            columns += [ExportedColumn("probability", dtype)] if scorer.is_logit else []

    def values(scores: NDArray[Any]) -> list[Any]:
        if columns[0].name == "class":
            return [scores.argmax(1), scores]
        single = scores[:, 0]
        if len(columns) == 1:
            return [single]
        # Never the exponential of a large number.
        small = np.exp(-np.abs(single))
        return [single, np.where(single >= 0, 1, small) / (1 + small)]

    def pieces() -> Iterator[tuple[Any, ...]]:
        for pairs, scores in found.pieces():
            yield (*ids.columns(pairs[:, 0], pairs[:, 1]), *values(scores))

    return Table((*VertexIds.header(graph), *columns), found.length, pieces, (columns[0].name,))
