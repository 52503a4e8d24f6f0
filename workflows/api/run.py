"""Training runs for scripts and notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnnloom.storage.errors import needing
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.predictions import SMOOTHED
from gnnloom.storage.runs.run import Run as StoredRun
from gnnloom.storage.wording import counted
from gnnloom.trainer.job.ranks import ranks_of_job
from gnnloom.trainer.tasks.registry import task_of_run
from gnnloom.workflows.api.catalog import CatalogLike, Dataset, as_catalog
from gnnloom.workflows.api.html import curve, fact_table
from gnnloom.workflows.formatting import readable
from gnnloom.workflows.interop.export import metrics_rows, run_frame_table
from gnnloom.workflows.interop.tables import frame_of, pandas

if TYPE_CHECKING:
    import pandas as pd
    import torch

#: What the names of whole numbers begin with.
_COUNTS = ("epoch", "bytes_sent", "messages_sent")


class Run:
    """A training run: its configuration, metrics, weights, predictions and report, read when they are asked for.

    ``gnnloom.train`` returns one; :meth:`open` finds one by name.

    Attributes:
        dataset: the dataset that the run was trained on.
        name: name of the run within the dataset.
    """

    def __init__(self, dataset: Dataset, name: str, code: Mapping[str, str] | None = None) -> None:
        """Refer to a run, which need not exist yet.

        Args:
            code: option to ``package.module:NAME`` of code that may be imported for this run.

        Raises:
            InputError: ``name`` is not a valid name of a run.
        """
        self.dataset, self.name = dataset, name
        self._stored, self._code = StoredRun(dataset.run_path(name)), dict(code or {})

    @classmethod
    def open(cls, name: str, catalog: CatalogLike = None) -> Self:
        """Find an existing run.

        Args:
            name: ``DATASET/RUN``, or only ``DATASET`` if it has one run.
            catalog: the catalog or its directory; by default ``$GNNLOOM_CATALOG``, or else ``./catalog``.

        Raises:
            NotFoundError: there is no such dataset or run.
            InputError: the dataset has no run, or several and none was named.
        """
        owner, _, run = name.partition("/")
        dataset = as_catalog(catalog)[owner]
        return cls(dataset, StoredRun.open(dataset, run or None).name)

    def __repr__(self) -> str:
        return f"Run('{self.dataset.name}/{self.name}', {self.state}, {counted(len(self._stored.metrics()), 'epoch')})"

    @property
    def path(self) -> Path:
        """Folder of the run."""
        return self._stored.path

    @property
    def state(self) -> str:
        """``finished``, ``unfinished`` or ``not started``; ``transferred`` if it was trained on another graph."""
        return self._stored.state if self._stored.exists else "not started"

    def code(self, **named: str | None) -> dict[str, str | None]:
        """Names of the code that may be imported for this run: names from the call, or else from the training's call.

        Args:
            named: option to ``package.module:NAME``; None where the call gives none.
        """
        return {name: self._code.get(name) if given is None else given for name, given in named.items()}

    def config(self) -> dict[str, Any]:
        """The configuration that the run was made with, every default filled in."""
        return self._stored.config()

    def result(self) -> dict[str, Any]:
        """The summary that ``gnnloom train --json`` prints, such as ``loss`` per epoch and ``test_accuracy``.

        Raises:
            IncompleteError: the run has not finished.
        """
        return self._stored.result()

    def forecast(self) -> dict[str, Any]:
        """The planner's forecast from when training last began or continued; empty if the planner could make none.

        The names are the names of ``gnnloom plan --json``.

        ``profile`` names the profile of the machine that the times come from: ``local`` if `gnnloom calibrate` measured
        this one, else ``generic``.

        Raises:
            CorruptError: the file is damaged.
        """
        return self._stored.forecast()

    def metrics(self) -> dict[str, NDArray[Any]]:
        """The figures of every finished epoch, by name.

        The names and numbers are the same as from ``gnnloom export metrics``.

        Returns:
            (num_epochs,) int64 ``epoch``, counted from 1; ``bytes_sent`` and ``messages_sent``, sums over all ranks,
            and the same for each kind of message, such as ``bytes_sent_gradient``; (num_epochs,) float64 ``loss``,
            ``seconds`` of the slowest rank, and scores such as ``val_accuracy``, NaN in epochs without an evaluation.

        Raises:
            CorruptError: the file of the metrics is damaged.
        """
        rows = metrics_rows(self._stored)
        names = dict.fromkeys(["epoch", *(name for row in rows for name in row)])
        return {name: _column(name, [row.get(name) for row in rows]) for name in names}

    def metrics_frame(self) -> pd.DataFrame:
        """The arrays of :meth:`metrics` as a pandas DataFrame, indexed by epoch.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        frame: pd.DataFrame = pandas().DataFrame(self.metrics()).set_index("epoch")
        return frame

    def frame(self, *, smoothed: bool = False) -> pd.DataFrame:
        """Predictions of the run for each vertex, as a pandas DataFrame; ``gnnloom.predict`` makes the predictions.

        Args:
            smoothed: the predictions that ``gnnloom.predict(run, smooth=...)`` smoothed over the edges of the graph.

        Returns:
            A row for each vertex, with its id or name in the source (``vertex``), its prediction (such as ``class``)
            and scores (``score_0``, ...), and its ``label`` and ``split`` if it has them. If classes have names,
            ``class_name`` is the name of the predicted class. A run on pairs has a vector for each vertex instead.

        Raises:
            NotFoundError: the run has no predictions.
            MissingPackageError: pandas is not installed.
        """
        return frame_of(run_frame_table(self.dataset, self._stored, smoothed=smoothed))

    def state_dict(self, epoch: int | None = None) -> dict[str, torch.Tensor]:
        """The weights of a checkpoint as whole tensors, for one process, whatever ranks trained them.

        Args:
            epoch: number of epochs after which the checkpoint was written; the last checkpoint by default.

        Returns:
            Parameters and running averages by name, on the CPU, in the data type of the training.

        Raises:
            NotFoundError: the run has no such checkpoint.
            CorruptError: the checkpoint is damaged.
        """
        from gnnloom.trainer.training.state.checkpoint import whole_state

        return whole_state(read_checkpoint(self._stored.checkpoints, epoch))

    def predictions(self, start: int = 0, stop: int | None = None, *, smoothed: bool = False) -> NDArray[Any]:
        """The predictions for the vertices ``start`` to ``stop``; ``gnnloom.predict`` makes them.

        Args:
            smoothed: those that ``gnnloom.predict(run, smooth=...)`` smoothed over the edges of the graph.

        Returns:
            (stop - start,) int32 classes; for several labels per vertex, (stop - start, num_classes) int8 zeros and
            ones; for a regression, (stop - start, num_targets) numbers; for a run on pairs, (stop - start, output_dim)
            vectors, from which :meth:`score` makes scores.

        Raises:
            NotFoundError: the run has no predictions.
        """
        stored = self._stored.predictions()
        prefix = SMOOTHED if smoothed else ""
        return stored.array(prefix + task_of_run(self.config(), stored).prediction).read(start, stop)

    def scores(self, start: int = 0, stop: int | None = None, *, smoothed: bool = False) -> NDArray[Any]:
        """(stop - start, num_classes) scores before the softmax or sigmoid.

        Args:
            smoothed: those that ``gnnloom.predict(run, smooth=...)`` smoothed, which have gone through the softmax.

        Raises:
            NotFoundError: the run has no predictions.
        """
        return self._stored.predictions().array(f"{SMOOTHED}score" if smoothed else "score").read(start, stop)

    def embeddings(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """(stop - start, width) output of the last hidden layer; ``gnnloom.predict(run, embeddings=True)`` makes it.

        Raises:
            NotFoundError: the run has no predictions, or no embeddings.
        """
        return self._stored.predictions().embedding(start, stop)

    def score(self, pairs: ArrayLike, *, decoder: str | None = None) -> NDArray[Any]:
        """Scores of pairs of vertices, from the vectors of the run's predictions; ``gnnloom.predict`` makes them.

        Args:
            pairs: (num_pairs, 2) integers: source and target by their numbers in the graph, from 0, as in the pairs of
                links. ``gnnloom predict --pairs`` takes the ids of the source instead.
            decoder: the run's decoder, as for ``gnnloom.predict``.

        Returns:
            (num_pairs,) scores of a run on links: higher for pairs that are more likely to be edges, and with the loss
            ``bce`` the logit of the probability; (num_pairs,) predicted numbers of a run on numbers; (num_pairs,
            num_classes) scores before the softmax of a run on classes.

        Raises:
            InputError: the run does not predict pairs, or these are not pairs of vertices.
            NotFoundError: the run has no predictions, or its links or its checkpoint were removed.
        """
        from gnnloom.trainer.training.pair_scores import PairScorer

        with PairScorer.open(self.dataset, self._stored, decoder=self.code(decoder=decoder)["decoder"]) as scorer:
            return scorer.scores(np.asarray(pairs))

    def top(
        self,
        vertices: ArrayLike,
        k: int,
        *,
        ranks: int | None = None,
        model: str | None = None,
        decoder: str | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The best targets of some vertices: those with the highest scores to which no edge leads from them yet.

        Exact: every vertex is scored with all others. Edges are those of the graph that the links were made from, the
        held-out ones among them. A vertex is never its own target.

        Args:
            vertices: (num_vertices,) integers, numbers of vertices in the graph.
            k: number of targets for each.
            ranks: number of MPI ranks that share the work, with the same result; by default this process alone. In an
                MPI job, a number makes the call collective, and has to be that of the job.
            model, decoder: the run's model and decoder, as for ``gnnloom.predict``.

        Returns:
            (num_vertices, k) int64 targets, the best first, of equal ones the lower number; and (num_vertices, k)
            scores. If a vertex has fewer, -1 and -inf follow.

        Raises:
            InputError: the run predicts vertices or classes of pairs, or ``vertices`` are not some of the graph.
            NotFoundError: as :meth:`score`.
        """
        from gnnloom.trainer.training.best_targets import best_targets
        from gnnloom.trainer.training.pair_scores import PairScorer
        from gnnloom.workflows.interop.scored_pairs import check_sources, targets_of

        given = np.asarray(vertices)
        check_sources(self._stored, given, k)
        given = given.astype(np.int64)
        if ranks is not None:
            with ranks_of_job("gnnloom top") as here:
                code = self.code(model=model, decoder=decoder)
                return targets_of(self.dataset, self._stored, given, k, here, ranks, **code)
        with PairScorer.open(self.dataset, self._stored, decoder=self.code(decoder=decoder)["decoder"]) as scorer:
            parts = list(best_targets(scorer, self.dataset.graph(scorer.links.message_graph), given, k))
        return np.concatenate([part[1] for part in parts]), np.concatenate([part[2] for part in parts])

    def score_frame(self, pairs: ArrayLike, *, decoder: str | None = None) -> pd.DataFrame:
        """Scores of pairs that are given by the ids of the source, as ``gnnloom predict --pairs`` writes them.

        Args:
            pairs: (num_pairs, 2) ids or names: a data frame with two columns, an array or a list.
            decoder: the run's decoder, as for ``gnnloom.predict``.

        Returns:
            A row for each pair: ``source``, ``target``, ``score``, and ``probability`` or ``class`` where the run has
            them.

        Raises:
            InputError: as :meth:`score`, or an id is not one of the graph.
            NotFoundError: as :meth:`score`.
            MissingPackageError: pandas is not installed.
        """
        from gnnloom.workflows.interop.given_vertices import find_vertices
        from gnnloom.workflows.interop.scored_pairs import scored_pairs

        code = self.code(decoder=decoder)["decoder"]
        with scored_pairs(
            self.dataset, self._stored, lambda graph: [find_vertices(graph, "pairs", pairs)], code
        ) as table:
            return frame_of(table)

    def top_frame(self, vertices: ArrayLike, k: int, *, decoder: str | None = None) -> pd.DataFrame:
        """The best targets of vertices that are given by the ids of the source; see :meth:`top`.

        Args:
            vertices: (num_vertices,) ids or names.
            k: number of targets for each.
            decoder: the run's decoder, as for ``gnnloom.predict``.

        Returns:
            At most k rows for each vertex, the best first: ``source``, ``target``, ``score`` and, for scores that are
            logits, ``probability``.

        Raises:
            InputError: as :meth:`top`, or an id is not one of the graph.
            NotFoundError: as :meth:`top`.
            MissingPackageError: pandas is not installed.
        """
        from gnnloom.trainer.training.best_targets import best_targets, found_pairs
        from gnnloom.trainer.training.pair_scores import PairScorer
        from gnnloom.workflows.interop.given_vertices import find_vertices
        from gnnloom.workflows.interop.scored_pairs import Wanted, pair_table

        Wanted(top=k).check(self._stored)
        code = self.code(decoder=decoder)["decoder"]
        with PairScorer.open(self.dataset, self._stored, decoder=code) as scorer:
            graph = self.dataset.graph(scorer.links.graph)
            sources = find_vertices(graph, "vertices", vertices)
            found = best_targets(scorer, self.dataset.graph(scorer.links.message_graph), sources, k)
            with pair_table(scorer, graph, (found_pairs(*each)[:2] for each in found)) as table:
                return frame_of(table)

    def report(self, out: Path | str | None = None) -> Path:
        """Write a report: one HTML page, and its pictures as PNG files.

        Args:
            out: folder of the report; ``report-DATASET-RUN`` in the current directory by default.

        Returns:
            The page.

        Raises:
            MissingPackageError: Matplotlib is not installed.
            InputError: no epoch has finished.
            ExistsError: ``out`` exists and is not a report.
        """
        with needing("a report", "gnnloom[report]"):
            from gnnloom.workflows.report.build import write_report
            from gnnloom.workflows.report.facts import RunFacts
        folder = Path(out) if out is not None else Path(f"report-{self.dataset.name}-{self.name}")
        return write_report(RunFacts.gather(self.dataset, self.name), folder)[0]

    def _repr_html_(self) -> str:
        """A table of the main figures and the curve of the loss, for notebooks."""
        metrics, config = self.metrics(), self.config() if self._stored.exists else {}
        settings = ("model", "algorithm", "ranks", "hidden", "lr")
        facts = {"state": self.state, "epochs": f"{len(metrics['epoch'])} of {config.get('epochs', '?')}"}
        facts |= {name: str(config[name]) for name in settings if name in config}
        for name, values in metrics.items():
            measured = values[~np.isnan(values)] if values.dtype.kind == "f" else values
            # The sums are enough; a run has a dozen kinds of messages.
            is_kind = name.startswith(("bytes_sent_", "messages_sent_"))
            if name != "epoch" and not is_kind and len(measured):
                facts[name.replace("_", " ")] = readable(name, measured[-1].item())
        loss = metrics.get("loss", np.empty(0))
        title = f"run {self.dataset.name}/{self.name}"
        return fact_table(title, facts) + curve("loss by epoch", loss[np.isfinite(loss)].tolist())


def _column(name: str, values: list[float | None]) -> NDArray[Any]:
    if name.startswith(_COUNTS):
        # A kind of message that no rank sent in an epoch counts 0.
        return np.array([value or 0 for value in values], np.int64)
    return np.array(values, np.float64)
