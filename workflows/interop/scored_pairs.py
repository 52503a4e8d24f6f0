"""Scores of pairs, and the best targets of vertices, as tables for other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnnloom.pipeline.sources.understood import Understood
from gnnloom.pipeline.sources.vertex_data.table_columns import split_location
from gnnloom.storage import Dataset
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.disk.own_folder import own_folder
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.option import Group, option
from gnnloom.storage.runs.run import Run
from gnnloom.storage.runs.transfer import links_of_run
from gnnloom.workflows.interop.export import VertexIds, end_columns, mapped_ends, write_predictions
from gnnloom.workflows.interop.given_vertices import (
    Ends,
    find_vertices,
    open_pairs,
    read_pairs,
    read_vertices,
    understood_vertices,
)
from gnnloom.workflows.interop.tables import ExportedColumn, Table, first_rows, write_table

if TYPE_CHECKING:
    from gnnloom.trainer.config.predict_config import PredictConfig
    from gnnloom.trainer.job.ranks import Ranks
    from gnnloom.trainer.training.best_targets import FoundPairs
    from gnnloom.trainer.training.pair_scores import PairModel

#: Number of scored pairs that a command prints.
SHOWN_PAIRS: Final = 10


@dataclass(frozen=True)
class PairRequest:
    """Request for predictions of pairs.

    Attributes:
        pairs: file with the pairs to score, or (num_pairs, 2) ids of the source; or else
        top: number of targets to find for each vertex.
        of: file with the vertices, or (num_vertices,) ids of the source; None for all.
        header: whether the first line of the file with the pairs names the columns; None if not given.
    """

    pairs: Path | ArrayLike | None = option(  # noqa: RUF009 - an option is immutable
        None,
        "File with pairs to score, in any edge format, with the ids of the ingested files. Columns may follow, as in"
        " payments.csv:account,shop.",
        kind=Path,
        group=Group.TASK,
        is_common=True,
        metavar="FILE[:COLUMNS]",
    )
    top: int | None = option(
        None,
        "Find the K best targets of each vertex: the targets with the highest scores among the vertices to which it"
        " has no edge yet.",
        kind=int,
        group=Group.TASK,
        is_common=True,
        least=1,
        metavar="K",
    )
    of: Path | ArrayLike | None = option(  # noqa: RUF009 - an option is immutable
        None,
        "Vertices to find targets for: a text file with an id per line, or a column of a table.",
        kind=Path,
        group=Group.TASK,
        default_text="all",
        metavar="FILE[:COLUMN]",
    )

    header: bool | None = option(
        None,
        "Whether the first line of a text file of pairs names the columns; detected by default.",
        kind=bool,
        group=Group.TASK,
        deniable=True,
    )

    def __bool__(self) -> bool:
        return self.pairs is not None or self.top is not None

    def understood(self, dataset: Dataset, run: Run) -> list[Understood]:
        """Describe how the files are read, judging by their first lines; raises as :meth:`check` does."""
        self.check(run)
        if self.pairs is None and self.of is None:
            return []
        ends = dataset.end_ids(links_of_run(dataset, run))
        if isinstance(self.pairs, Path):
            return open_pairs(self.pairs, self.header).understood(names=any(each.has_names for each in ends))
        return [understood_vertices(ends[0], self.of)] if isinstance(self.of, Path) else []

    def check(self, run: Run) -> None:
        """Check that the request is consistent, and that the run can answer it.

        Raises:
            NotFoundError: there is no such file.
            InputError: the request contradicts itself, or the run does not predict pairs.
        """
        if self.pairs is not None and self.top is not None:
            raise InputError("pairs and top: choose one of them")
        if self.of is not None and self.top is None:
            raise InputError("of: also give top, the number of targets per vertex")
        if self.header is not None and not isinstance(self.pairs, Path):
            raise InputError("header: applies only to a file of pairs; give pairs as well")
        if self.top is not None and self.top < 1:
            raise InputError(f"top: expected a number of targets from 1 on, found {self.top}")
        if not self:
            return
        from gnnloom.trainer.config.train_config import TrainConfig
        from gnnloom.trainer.training.pair_scores import check_on_pairs, check_ranks

        task = check_on_pairs(TrainConfig.of_run(run), run.path)
        if self.top is not None:
            check_ranks(task)
        if isinstance(self.pairs, Path):
            open_pairs(self.pairs, self.header)
        if isinstance(self.of, Path) and not Path(split_location(str(self.of))[0]).exists():
            raise NotFoundError(f"{self.of}: no such file")


def write_asked(
    here: Ranks,
    dataset: Dataset,
    run: Run,
    config: PredictConfig,
    wanted: PairRequest,
    out: Path | None,
    *,
    safe_csv: bool = False,
    take: Callable[[Table], None] | None = None,
    shown: int = SHOWN_PAIRS,
) -> dict[str, Any]:
    """Write the requested predictions: scores of pairs, or else classes. Collective on a job's ranks.

    Args:
        dataset, run: the run that predicts; it has predictions already, unless targets are wanted.
        config: the prediction, which the ranks make when they find targets.
        out: the file; None for none.
        safe_csv: see :func:`~gnnloom.workflows.interop.tables.write_table`.
        take: called on the first rank with the table of the scores of pairs.
        shown: number of pairs to return.

    Returns:
        The number of scored pairs and the first pairs, after the summary of the prediction if targets are wanted;
        empty for classes. The same on every rank.
    """

    def write(scored: AbstractContextManager[Table]) -> dict[str, Any]:
        with scored as table:
            if take is not None:
                take(table)
            if out is not None:
                write_table(table, out, safe_csv=safe_csv)
            return {"pairs": table.length, "first": first_rows(table, shown) if shown else []}

    result: dict[str, Any] = {}
    if wanted.top is not None:
        with ranks_found(here, config, wanted.top, lambda: wanted_sources(dataset, run, wanted.of)) as (found, folder):
            result = here.on_first(lambda: write(found_targets(dataset, run, folder, config.decoder)))
            return {**found, **result}
    if (pairs := wanted.pairs) is not None:
        scored = scored_pairs(dataset, run, lambda ends: read_pairs(ends, pairs, wanted.header), config.decoder)
        result = here.on_first(lambda: write(scored))
    elif out is not None:
        smoothed = config.smoothing.smooths
        here.on_first(lambda: write_predictions(dataset, run, out, smoothed=smoothed, safe_csv=safe_csv))
    return result


@contextmanager
def scored_pairs(
    dataset: Dataset, run: Run, read: Callable[[Ends], Iterable[NDArray[np.int64]]], decoder: str | None = None
) -> Iterator[Table]:
    """Score pairs with the stored predictions of a run; the table can be read inside the block.

    Results go to temporary files, so that memory grows neither with the pairs nor with the vertices.

    Args:
        read: yields (num_pairs, 2) pairs of vertices, piece by piece, from the ids of both ends.
        decoder: the run's decoder, to confirm the import of a decoder that is not gnnloom's.

    Raises:
        NotFoundError: the run has no predictions.
        InputError: the run predicts vertices, or its decoder is not confirmed; and any error of ``read``.
    """
    from gnnloom.trainer.training.pair_scores import PairScorer

    with PairScorer.open(dataset, run, decoder=decoder) as scorer:
        ends = dataset.end_ids(scorer.links)
        with pair_table(scorer, ends, ((some, scorer.scores(some)) for some in read(ends))) as table:
            yield table


@contextmanager
def pair_table(
    scorer: PairModel, ends: Ends, scored: Iterable[tuple[NDArray[np.int64], NDArray[Any]]]
) -> Iterator[Table]:
    """A table of pairs and their scores, which can be read inside the block.

    Args:
        ends: ids of the vertices that the pairs join.
        scored: (num_pairs, 2) pairs and their scores, piece by piece.
    """
    from gnnloom.trainer.training.best_targets import FoundPairs

    with own_folder() as folder:
        found = FoundPairs(folder, scorer.decoder.num_outputs, scorer.dtype)
        with found.written():
            for pairs, scores in scored:
                found.add(pairs, scores)
        yield _table(scorer, ends, found)


def wanted_sources(dataset: Dataset, run: Run, of: Path | ArrayLike | None) -> NDArray[np.int64] | None:
    """The vertices of ids in a file or in memory; None, which stands for all vertices, without either.

    Raises:
        NotFoundError: there is no such file.
        InputError: an id in it is not one of the graph.
    """
    if of is None:
        return None
    sources = dataset.end_ids(links_of_run(dataset, run))[0]
    return read_vertices(sources, of) if isinstance(of, Path) else find_vertices(sources, "of", of)


def targets_here(
    dataset: Dataset, run: Run, sources: NDArray[np.int64], count: int, decoder: str | None
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The best targets of some vertices, found by this process; see :meth:`gnnloom.workflows.api.catalog.Run.top`."""
    from gnnloom.trainer.training.best_targets import best_targets
    from gnnloom.trainer.training.pair_scores import PairScorer

    with PairScorer.open(dataset, run, decoder=decoder) as scorer:
        parts = list(best_targets(scorer, dataset.message_edges(scorer.links), sources, count))
    return np.concatenate([part[1] for part in parts]), np.concatenate([part[2] for part in parts])


@contextmanager
def top_pairs(
    dataset: Dataset, run: Run, vertices: ArrayLike, count: int, decoder: str | None = None
) -> Iterator[Table]:
    """The best targets of vertices that are given by the ids of the source; the table can be read inside the block.

    Raises:
        NotFoundError: the run has no predictions.
        InputError: an id is not in the graph, or the run does not predict pairs.
    """
    from gnnloom.trainer.training.best_targets import best_targets, found_pairs
    from gnnloom.trainer.training.pair_scores import PairScorer

    PairRequest(top=count).check(run)
    with PairScorer.open(dataset, run, decoder=decoder) as scorer:
        ends = dataset.end_ids(scorer.links)
        sources = find_vertices(ends[0], "vertices", vertices)
        found = best_targets(scorer, dataset.message_edges(scorer.links), sources, count)
        with pair_table(scorer, ends, (found_pairs(*each)[:2] for each in found)) as table:
            yield table


def ids_as_text(ids: SourceIds, vertices: NDArray[np.int64]) -> NDArray[Any]:
    """The source ids of vertices as strings, in an array of the same shape; empty for -1."""
    there = vertices >= 0
    found = np.full(vertices.shape, "", object)
    with own_folder() as folder:
        copies = VertexIds.of(ids, folder)
        found[there] = [str(each) for each in copies.columns(vertices[there])[-1]]
        copies.check()
    return found


@contextmanager
def ranks_found(
    here: Ranks, config: PredictConfig, count: int, sources: Callable[[], NDArray[np.int64] | None]
) -> Iterator[tuple[dict[str, Any], Path]]:
    """Predict on some ranks, which then find the best targets of vertices. Collective on a job's ranks.

    Args:
        count: targets of each vertex.
        sources: called on the first rank; returns the vertices, or None for all.

    Yields:
        The summary of the prediction, and the first rank's folder with the targets, which exists inside the block.
    """
    from gnnloom.trainer.training.best_targets import GivenSources

    with ExitStack() as held:

        def prepared() -> str:
            folder, given = held.enter_context(own_folder()), sources()
            if given is not None:
                GivenSources(folder).write(given)
            return str(folder)

        folder = here.on_first(prepared)
        yield here.predict(replace(config, top=count, targets=folder)), Path(folder)


@contextmanager
def found_targets(dataset: Dataset, run: Run, folder: Path, decoder: str | None = None) -> Iterator[Table]:
    """The targets that ranks found and wrote to a folder; the table can be read inside the block.

    Args:
        decoder: as for :func:`scored_pairs`.
    """
    from gnnloom.trainer.training.best_targets import FoundPairs
    from gnnloom.trainer.training.pair_scores import PairModel

    model = PairModel.of(dataset, run, decoder=decoder)
    yield _table(model, dataset.end_ids(model.links), FoundPairs(folder, 1, model.dtype))


def targets_of(
    dataset: Dataset,
    run: Run,
    vertices: NDArray[np.int64],
    count: int,
    here: Ranks,
    ranks: int,
    *,
    model: str | None = None,
    decoder: str | None = None,
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The best targets of some vertices, found by some ranks; see :meth:`gnnloom.workflows.api.catalog.Run.top`.

    Collective in an MPI job; every rank gets all pairs.
    """
    from gnnloom.trainer.config.predict_config import PredictConfig
    from gnnloom.trainer.training.best_targets import read_targets
    from gnnloom.trainer.training.pair_scores import PairModel

    def settle() -> tuple[PredictConfig, PairModel]:
        scorer = PairModel.of(dataset, run, decoder=decoder)
        scorer.check_sources(vertices)
        config = PredictConfig.of_run(dataset, run, model=model, decoder=decoder, ranks=here.number(ranks))
        # With the stored vectors, whichever checkpoint made them.
        return replace(config, epoch=int(run.predictions().facts["epoch"])), scorer

    config, scorer = here.agree(settle, lambda settled: settled[0].to_json())
    dtype = scorer.dtype
    with ranks_found(here, config, count, lambda: vertices) as (_, folder):
        target, score = here.on_first(lambda: [each.tolist() for each in read_targets(folder, count, dtype)])
    return np.array(target, np.int64).reshape(-1, count), np.array(score, dtype).reshape(-1, count)


def _table(scorer: PairModel, ends: Ends, found: FoundPairs) -> Table:
    dtype, several = scorer.dtype, scorer.decoder.num_outputs
    class_names = scorer.links.class_names
    match scorer.links.kind if not scorer.task.losses else "link":
        case "class":
            columns = [ExportedColumn("class", np.dtype(np.int32)), ExportedColumn("score", dtype, several)]
            columns += [ExportedColumn("class_name", None)] if class_names else []
        case "number":
            columns = [ExportedColumn("number", dtype)]
        case _:
            columns = [ExportedColumn("score", dtype)]
            columns += [ExportedColumn("probability", dtype)] if scorer.is_logit else []

    def values(scores: NDArray[Any]) -> list[Any]:
        if columns[0].name == "class":
            number = scores.argmax(1)
            return [number, scores, *([[class_names[each] for each in number]] if class_names else [])]
        single = scores[:, 0]
        if len(columns) == 1:
            return [single]
        # Never the exponential of a large number.
        small = np.exp(-np.abs(single))
        return [single, np.where(single >= 0, 1, small) / (1 + small)]

    def pieces() -> Iterator[tuple[Any, ...]]:
        with mapped_ends(*ends) as ids:
            for pairs, scores in found.pieces():
                yield (*ids(*pairs.T), *values(scores))

    return Table((*end_columns(*ends), *columns), found.length, pieces, (columns[0].name,))
