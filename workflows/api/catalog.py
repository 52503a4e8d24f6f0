"""Catalogs, datasets and runs for scripts and notebooks: the classes of storage, with views for other libraries.

They are in one file because a dataset has runs, and a run knows its dataset.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnnloom.storage import Catalog as StoredCatalog
from gnnloom.storage import Dataset as StoredDataset
from gnnloom.storage.artifacts.typed.typed_names import REVERSE
from gnnloom.storage.errors import InputError, needing
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.predictions import SMOOTHED
from gnnloom.storage.runs.run import Run as StoredRun
from gnnloom.storage.runs.transfer import links_of_run
from gnnloom.storage.wording import counted
from gnnloom.workflows.api.options.python_messages import speaking_python
from gnnloom.workflows.interop.graph_libraries import MAX_NONZEROS
from gnnloom.workflows.report.notebook import catalog_html, dataset_html, run_html

if TYPE_CHECKING:
    import pandas as pd
    import scipy.sparse
    import torch
    import xarray
    from torch_geometric.data.data import Data
    from torch_geometric.data.hetero_data import HeteroData


_in_python = partial(speaking_python, options={})

#: Beginnings of the names of whole numbers.
_COUNTS = ("epoch", "bytes_sent", "messages_sent")


class Dataset(StoredDataset):
    """One dataset: its graph, vertex data, partitions, shards and runs, and the same data for other libraries.

    Get one from a :class:`Catalog`, or from the function that makes it, such as ``gnnloom.ingest``.
    """

    @_in_python
    def to_scipy(
        self, graph: str | None = None, max_nnz: int = MAX_NONZEROS, relation: str | None = None
    ) -> scipy.sparse.csr_array[Any]:
        """Load the adjacency as a SciPy matrix, in which A[i, j] is the edge j -> i.

        Args:
            graph: key, to choose between several graphs.
            max_nnz: maximum number of nonzeros to load.
            relation: relation to load, in a graph with types; ``rev_`` and the name for the reverse of a relation.

        Raises:
            NotFoundError: the dataset has no graph.
            BudgetError: the graph has more than ``max_nnz`` nonzeros.
        """
        if relation is None:
            return self.graph(graph).to_scipy(max_nnz)
        typed = self.typed_graph(graph)
        is_stored = relation in {each.name for each in typed.relations}
        matrix = typed.reverse(relation) if relation.startswith(REVERSE) and not is_stored else typed.relation(relation)
        return matrix.to_scipy(max_nnz)

    @_in_python
    def to_pyg(self, graph: str | None = None, max_nnz: int = MAX_NONZEROS) -> Data | HeteroData:
        """Load the dataset as PyTorch Geometric's ``Data``, or ``HeteroData`` if its graph has types.

        See ``interop/graph_libraries.py``.

        Raises:
            MissingPackageError: PyTorch Geometric is not installed.
            NotFoundError, BudgetError: as :meth:`to_scipy`.
        """
        with needing("to_pyg", "gnnloom[interop]"):
            from gnnloom.workflows.interop.graph_libraries import to_pyg

            return to_pyg(self, graph, max_nnz)

    @_in_python
    def to_dgl(self, graph: str | None = None, max_nnz: int = MAX_NONZEROS) -> Any:
        """Load the dataset as a ``DGLGraph``; see :func:`gnnloom.workflows.interop.graph_libraries.to_dgl`.

        Raises:
            MissingPackageError: DGL is not installed.
            NotFoundError, BudgetError: as :meth:`to_scipy`.
        """
        with needing("to_dgl", "dgl"):
            from gnnloom.workflows.interop.graph_libraries import to_dgl

            return to_dgl(self, graph, max_nnz)

    @_in_python
    def to_xarray(
        self, graph: str | None = None, vertices: str | None = None, of_type: str | None = None
    ) -> xarray.Dataset:
        """Open the arrays over the vertices, loaded on access, as an xarray Dataset.

        See :func:`gnnloom.workflows.interop.xarray_view.to_xarray`.

        Args:
            graph: key, to choose between several graphs.
            vertices: key, to choose between several vertex data.
            of_type: type whose vertices to open, in a graph with types.

        Raises:
            MissingPackageError: xarray is not installed.
            NotFoundError: the dataset has neither a graph nor vertices, or the graph has no such type.
            InputError: the graph has types, and none is chosen; or several graphs or vertex data fit.
        """
        with needing("to_xarray", "gnnloom[xarray]"):
            from gnnloom.workflows.interop.xarray_view import to_xarray

            return to_xarray(self, graph, vertices, of_type)

    def run(self, name: str | None = None) -> Run:
        """Find a training run of this dataset.

        Args:
            name: name of the run; optional if the dataset has only one run.

        Raises:
            NotFoundError: there is no such run.
            InputError: no name is given, and the dataset has no run, or several.
        """
        return Run(self, StoredRun.open(self, name).name)

    def export_edges(
        self,
        out: Path | str | None = None,
        *,
        graph: str | None = None,
        relation: str | None = None,
        safe_csv: bool = False,
    ) -> pd.DataFrame | Path:
        """Return the stored edges as a data frame, or write them to a file: source, target and, if stored, weight.

        Equals ``gnnloom.export(dataset, "edges", ...)`` and raises the same errors.

        Args:
            out: file to write, piece by piece: ``.npy``, ``.npz``, ``.parquet`` or ``.csv``; by default, the edges
                become a data frame.
            graph: key, to choose between several graphs.
            relation: in a graph with types, the relation whose edges to export, with all their columns.
            safe_csv: put an apostrophe before names in a ``.csv`` that a spreadsheet takes for formulas.
        """
        return self._exported("edges", graph, relation, out, safe_csv=safe_csv)

    def export_features(
        self, out: Path | str | None = None, *, vertices: str | None = None, safe_csv: bool = False
    ) -> pd.DataFrame | Path:
        """Return the features as a data frame, or write them to a file: a row per vertex, with its id and features.

        Args:
            vertices: key, to choose between several vertex data; in a graph with types, the data of one type.
            out, safe_csv: as for :meth:`export_edges`.
        """
        return self._exported("features", vertices, None, out, safe_csv=safe_csv)

    def export_labels(
        self, out: Path | str | None = None, *, vertices: str | None = None, safe_csv: bool = False
    ) -> pd.DataFrame | Path:
        """Return labels and split as a data frame, or write them to a file; see :meth:`export_features`."""
        return self._exported("labels", vertices, None, out, safe_csv=safe_csv)

    def _exported(
        self, what: str, key: str | None, relation: str | None, out: Path | str | None, *, safe_csv: bool
    ) -> pd.DataFrame | Path:
        from gnnloom.workflows.interop.chosen_table import exported

        return exported(self, what, out, self.run, key=key, relation=relation, safe_csv=safe_csv)

    def _repr_html_(self) -> str:
        """A table for notebooks: every artifact with its parameters and size, and the runs."""
        return dataset_html(self)


class Catalog(StoredCatalog):
    """A directory of datasets.

    Examples:
        >>> catalog = gnnloom.Catalog("catalog")
        >>> web = catalog["web"]
        >>> web.to_scipy().shape
        (200, 200)
        >>> {finding.state for finding in web.verify()}
        {'complete'}
    """

    def __init__(self, root: Path | str | None = None) -> None:
        """Open a catalog, which need not exist yet.

        Args:
            root: its directory; by default ``$GNNLOOM_CATALOG``, or else ``catalog`` in the current directory.
        """
        super().__init__(os.environ.get("GNNLOOM_CATALOG", "catalog") if root is None else root)

    def _open(self, path: Path) -> Dataset:
        return Dataset(path)

    def import_dataset(self, file: Path | str, name: str | None = None) -> Dataset:
        """Import a file that :meth:`Dataset.export` wrote; see :mod:`gnnloom.storage.upkeep.archive_import`."""
        return self.dataset(super().import_dataset(file, name).name)

    def pull(self, url: str, name: str | None = None) -> Dataset:
        """Copy a dataset from a URL to which :meth:`Dataset.push` copied it.

        See :mod:`gnnloom.storage.upkeep.pull`.
        """
        return self.dataset(super().pull(url, name).name)

    def _repr_html_(self) -> str:
        """A table of the datasets, for notebooks."""
        return catalog_html(self)


class Run:
    """A training run: its configuration, metrics, weights, predictions and report, read on access.

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
    def open(cls, name: str, catalog: CatalogLike = None) -> Run:
        """Find an existing run.

        Args:
            name: ``DATASET/RUN``, or ``DATASET`` if the dataset has only one run.
            catalog: the catalog or its directory; by default ``$GNNLOOM_CATALOG``, or else ``./catalog``.

        Raises:
            NotFoundError, InputError: as :meth:`Dataset.run`, or there is no such dataset.
        """
        owner, _, run = name.partition("/")
        return as_catalog(catalog)[owner].run(run or None)

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
        """Names of the code that may be imported for this run: names in this call or, by default, in the training call.

        Args:
            named: option to ``package.module:NAME``; None where the call gives none.
        """
        return {name: self._code.get(name) if given is None else given for name, given in named.items()}

    def config(self) -> dict[str, Any]:
        """The configuration of the run, including defaults."""
        return self._stored.config()

    def result(self) -> dict[str, Any]:
        """The summary that ``gnnloom train --json`` prints, such as ``loss`` per epoch and ``test_accuracy``.

        Raises:
            IncompleteError: the run has not finished.
        """
        return self._stored.result()

    def forecast(self) -> dict[str, Any]:
        """The forecast of the planner when training last started or continued; empty if there was none.

        The names are those in the output of ``gnnloom plan --json``.

        ``profile`` names the profile of the machine that the times come from: ``local`` if `gnnloom calibrate` measured
        this one, else ``generic``.

        Raises:
            CorruptError: the file is damaged.
        """
        return self._stored.forecast()

    def metrics(self) -> dict[str, NDArray[Any]]:
        """Metrics of every finished epoch, by name.

        ``gnnloom export metrics`` writes the same names and numbers.

        >>> gnnloom.Run.open("web/first").metrics()["loss"].shape
        (5,)

        Returns:
            (num_epochs,) int64 ``epoch``, counted from 1; ``bytes_sent`` and ``messages_sent``, sums over all ranks,
            and the same for each kind of message, such as ``bytes_sent_gradient``; (num_epochs,) float64 ``loss``,
            ``seconds`` of the slowest rank, and scores such as ``val_accuracy``, NaN in epochs without an evaluation.

        Raises:
            CorruptError: the metrics file is damaged.
        """
        from gnnloom.workflows.interop.export import metrics_rows

        rows = metrics_rows(self._stored)
        names = dict.fromkeys(["epoch", *(name for row in rows for name in row)])
        return {name: _column(name, [row.get(name) for row in rows]) for name in names}

    def metrics_frame(self) -> pd.DataFrame:
        """The arrays of :meth:`metrics` as a pandas DataFrame, indexed by epoch.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        from gnnloom.workflows.interop.tables import pandas

        frame: pd.DataFrame = pandas().DataFrame(self.metrics()).set_index("epoch")
        return frame

    def frame(self, *, smoothed: bool = False) -> pd.DataFrame:
        """The stored predictions of ``gnnloom.predict`` as a pandas DataFrame, with a row for each vertex.

        Args:
            smoothed: return the predictions that ``gnnloom.predict(run, smooth=...)`` smoothed over the edges.

        Returns:
            A row for each vertex, with its id or name in the source (``vertex``), its prediction (such as ``class``)
            and scores (``score_0``, ...), and its ``label`` and ``split`` if it has them. If classes have names,
            ``class_name`` is the name of the predicted class. A run on pairs has a vector for each vertex instead.

        Raises:
            NotFoundError: the run has no predictions.
            MissingPackageError: pandas is not installed.
        """
        from gnnloom.workflows.interop.export import run_frame_table
        from gnnloom.workflows.interop.tables import frame_of

        return frame_of(run_frame_table(self.dataset, self._stored, smoothed=smoothed))

    def state_dict(self, epoch: int | None = None) -> dict[str, torch.Tensor]:
        """Load the weights of a checkpoint into one process as whole tensors, for any number of training ranks.

        Args:
            epoch: number of finished epochs at the checkpoint; the last checkpoint by default.

        Returns:
            Parameters and running averages by name, on the CPU, in the dtype of the training run.

        Raises:
            NotFoundError: the run has no such checkpoint.
            CorruptError: the checkpoint is damaged.
        """
        from gnnloom.trainer.training.state.checkpoint import whole_state

        return whole_state(read_checkpoint(self._stored.checkpoints, epoch))

    def predictions(self, start: int = 0, stop: int | None = None, *, smoothed: bool = False) -> NDArray[Any]:
        """Read the stored predictions of ``gnnloom.predict`` for vertices ``start`` to ``stop``.

        Args:
            smoothed: return the predictions that ``gnnloom.predict(run, smooth=...)`` smoothed over the edges.

        Returns:
            (stop - start,) int32 classes; for several labels per vertex, (stop - start, num_classes) int8 zeros and
            ones; for a regression, (stop - start, num_targets) numbers; for a run on pairs, (stop - start, output_dim)
            vectors, from which :meth:`score` makes scores.

        Raises:
            NotFoundError: the run has no predictions.
        """
        from gnnloom.trainer.tasks.registry import task_of_run

        stored = self._stored.predictions()
        prefix = SMOOTHED if smoothed else ""
        return stored.array(prefix + task_of_run(self.config(), stored).prediction).read(start, stop)

    def scores(self, start: int = 0, stop: int | None = None, *, smoothed: bool = False) -> NDArray[Any]:
        """(stop - start, num_classes) scores before the softmax or sigmoid.

        Args:
            smoothed: return the scores that ``gnnloom.predict(run, smooth=...)`` smoothed, after the softmax.

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
        """Compute scores of pairs of vertices from the vertex vectors that ``gnnloom.predict`` stored.

        Args:
            pairs: (num_pairs, 2) integers: source and target by their numbers in the graph, from 0, as in the pairs of
                links; or texts: ids or names of the source, as in files of pairs.
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
        from gnnloom.workflows.interop.given_vertices import are_texts, find_pairs

        with PairScorer.open(self.dataset, self._stored, decoder=self.code(decoder=decoder)["decoder"]) as scorer:
            ends = self.dataset.end_ids(scorer.links)
            return scorer.scores(find_pairs(ends, pairs) if are_texts(pairs) else np.asarray(pairs))

    def top(
        self,
        vertices: ArrayLike,
        k: int,
        *,
        ranks: int | None = None,
        model: str | None = None,
        decoder: str | None = None,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Find the targets with the highest scores for each vertex, among the vertices to which it has no edge.

        The result is exact: each given vertex is scored with all other vertices. Edges are the edges of the graph that
        the links were made from, including held-out edges. A vertex is never its own target.

        Args:
            vertices: (num_vertices,) integers, numbers of vertices in the graph; or texts such as ``["Acme"]``, ids or
                names of the source.
            k: number of targets per vertex.
            ranks: number of MPI ranks that share the work; the result does not depend on it. By default, this process
                does all the work. In an MPI job, ``ranks`` must be the number of ranks of the job, and the call is
                collective.
            model, decoder: the run's model and decoder, as for ``gnnloom.predict``.

        Returns:
            (num_vertices, k) targets, best first, with ties broken by the lower vertex number: int64 vertex numbers or,
            if ``vertices`` are texts, source ids as texts; and (num_vertices, k) scores. If a vertex has fewer than k
            targets, -1 (or empty texts) and -inf fill its row.

        Raises:
            InputError: the run predicts vertices or classes of pairs, or ``vertices`` are not some of the graph.
            NotFoundError: as :meth:`score`.
        """
        from gnnloom.trainer.job.ranks import ranks_of_job
        from gnnloom.workflows.interop.given_vertices import are_texts, find_vertices
        from gnnloom.workflows.interop.scored_pairs import PairRequest, ids_as_text, targets_here, targets_of

        PairRequest(top=k).check(self._stored)
        source, target = self.dataset.end_ids(links_of_run(self.dataset, self._stored))
        code = self.code(model=model, decoder=decoder)
        given = find_vertices(source, "vertices", vertices) if are_texts(vertices) else np.asarray(vertices)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise InputError(
                f"vertices: expected (num_vertices,) integers or texts, found {given.dtype} of shape {given.shape}"
            )
        given = given.astype(np.int64)
        if ranks is None:
            targets, scores = targets_here(self.dataset, self._stored, given, k, code["decoder"])
        else:
            with ranks_of_job("gnnloom top") as here:
                targets, scores = targets_of(self.dataset, self._stored, given, k, here, ranks, **code)
        return ids_as_text(target, targets) if are_texts(vertices) else targets, scores

    def score_frame(self, pairs: ArrayLike, *, decoder: str | None = None) -> pd.DataFrame:
        """Compute scores of pairs that are given by source ids, in the form that ``gnnloom predict --pairs`` writes.

        Args:
            pairs: (num_pairs, 2) ids or names: a data frame with two columns, an array or a list.
            decoder: the run's decoder, as for ``gnnloom.predict``.

        Returns:
            A row for each pair: ``source``, ``target``, ``score``, and ``probability`` or ``class`` if the run has
            them.

        Raises:
            InputError: as :meth:`score`, or an id is not one of the graph.
            NotFoundError: as :meth:`score`.
            MissingPackageError: pandas is not installed.
        """
        from gnnloom.workflows.interop.given_vertices import read_pairs
        from gnnloom.workflows.interop.scored_pairs import scored_pairs
        from gnnloom.workflows.interop.tables import frame_of

        code = self.code(decoder=decoder)["decoder"]
        with scored_pairs(self.dataset, self._stored, lambda ends: read_pairs(ends, pairs), code) as table:
            return frame_of(table)

    def top_frame(self, vertices: ArrayLike, k: int, *, decoder: str | None = None) -> pd.DataFrame:
        """Find the best targets of vertices that are given by source ids; see :meth:`top`.

        Args:
            vertices: (num_vertices,) ids or names.
            k: number of targets per vertex.
            decoder: the run's decoder, as for ``gnnloom.predict``.

        Returns:
            At most k rows for each vertex, the best first: ``source``, ``target``, ``score`` and, for scores that are
            logits, ``probability``.

        Raises:
            InputError: as :meth:`top`, or an id is not one of the graph.
            NotFoundError: as :meth:`top`.
            MissingPackageError: pandas is not installed.
        """
        from gnnloom.workflows.interop.scored_pairs import top_pairs
        from gnnloom.workflows.interop.tables import frame_of

        code = self.code(decoder=decoder)["decoder"]
        with top_pairs(self.dataset, self._stored, vertices, k, code) as table:
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
        """A table of the main figures and the loss curve, for notebooks."""
        return run_html(self.dataset, self._stored, self.metrics())


#: What stands for a catalog: its directory, or None for the default.
CatalogLike: TypeAlias = StoredCatalog | Path | str | None
#: What stands for a dataset: itself, or its name in the catalog.
DatasetLike: TypeAlias = StoredDataset | str


def as_catalog(catalog: CatalogLike) -> Catalog:
    """Open a catalog that is given as an object or a directory."""
    return Catalog(catalog.root if isinstance(catalog, StoredCatalog) else catalog)


def as_dataset(dataset: DatasetLike, catalog: CatalogLike = None) -> Dataset:
    """Open a dataset that is given as an object or a name.

    Args:
        dataset: the dataset, or its name.
        catalog: where to look for the name; see :func:`as_catalog`.

    Raises:
        NotFoundError: there is no such dataset.
        InputError: the name is not valid, or a dataset object was given along with another catalog.
    """
    if isinstance(dataset, str):
        return as_catalog(catalog)[dataset]
    if catalog is not None and as_catalog(catalog).root != dataset.path.parent:
        raise InputError(f"{dataset.path} is not in catalog {as_catalog(catalog).root}; leave out the catalog")
    return Dataset(dataset.path)


def _column(name: str, values: list[float | None]) -> NDArray[Any]:
    if name.startswith(_COUNTS):
        # A kind of message that no rank sent in an epoch counts 0.
        return np.array([value or 0 for value in values], np.int64)
    return np.array(values, np.float64)
