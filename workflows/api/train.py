"""Trains and predicts, on new MPI ranks of this machine or on the ranks of the calling job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from numpy.typing import ArrayLike

from gnnloom.storage import Catalog as StoredCatalog
from gnnloom.storage import Dataset as StoredDataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.run import Run as StoredRun
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.typed_vertices import chosen_graph, links_of_relation
from gnnloom.trainer.job.ranks import Ranks, ranks_of_job, settled
from gnnloom.workflows.api.catalog import CatalogLike, DatasetLike, Run, as_dataset
from gnnloom.workflows.api.options.keywords import check_known, plain_values, split_fields, with_options
from gnnloom.workflows.api.options.predict_options import PredictOptions, predict_options
from gnnloom.workflows.api.options.train_options import train_options, training_fields
from gnnloom.workflows.interop.scored_pairs import PairRequest, write_asked
from gnnloom.workflows.interop.tables import Table, check_file, frame_of
from gnnloom.workflows.interop.transfer import Elsewhere, moved_to
from gnnloom.workflows.interop.typed_transfer import stored_reverses

if TYPE_CHECKING:
    import pandas as pd

    from gnnloom.workflows.api.options.option_types import PredictKeywords, TrainKeywords


@with_options(train_options())
def train(
    dataset: DatasetLike, *, restart: bool = False, catalog: CatalogLike = None, **options: Unpack[TrainKeywords]
) -> Run:
    """Train on the whole graph of a dataset, or on samples of it.

    The ranks are new processes on this machine, which end with the call; scripts and notebooks need no ``if __name__ ==
    "__main__":``. Inside an MPI job (``mpirun -n 4 python -m mpi4py script.py``) the call is
    collective: the ranks of the job train, and ``ranks`` is their number by default.

    Progress is logged to the logger ``gnnloom.trainer`` at level INFO.

    >>> run = gnnloom.train("web", ranks=2, hidden=16, epochs=5, run="doc")
    >>> run
    Run('web/doc', finished, 5 epochs)
    >>> run.result()["ranks"]
    2

    Args:
        dataset: the dataset or its name.
        restart: start the run over. By default, an existing run continues from its last checkpoint, and a finished run
            is returned unchanged. If the run exists, options that are not given keep its values.
        catalog: the catalog or its directory; by default ``$GNNLOOM_CATALOG``, or else ``./catalog``.
        options: options of the run, as in ``gnnloom train --help``. Widths of layers are a tuple or list; one
            number stands for one hidden layer.

    Returns:
        The run.

    Raises:
        InputError: an option is unknown, has a wrong value, or does not fit the dataset.
        NotFoundError: the dataset or its shards do not exist.
        ExistsError: a run of this name was made with other options, or another process is writing it.
        LaunchError: mpiexec is missing, or the ranks failed. Its subclass ``StoppedError``: the run was asked to stop,
            and the same call continues it.
        CollectiveError: inside an MPI job: any of these errors, raised on every rank.
    """
    found = as_dataset(dataset, catalog)
    given = {"catalog": str(found.path.parent), "dataset": found.name} | training_fields(options)
    with ranks_of_job("gnnloom train", trains=True) as ranks:
        config = settled(ranks, given, restart=restart)
        if config.mode.reverse:
            store_reverses(ranks, config)
        return Run(found, ranks.train(config, restart=restart)["run"], config.own_code())


def store_reverses(ranks: Ranks, config: TrainConfig) -> None:
    """Store the reverses of relations that a training run reads. Collective in an MPI job."""

    def store() -> None:
        dataset, mode = StoredCatalog(config.data.catalog).dataset(config.data.dataset), config.mode
        links = None if mode.relation is None else links_of_relation(dataset, mode.relation, config.task.links)
        stored_reverses(dataset, chosen_graph(dataset, mode.vertex_data, links))

    ranks.on_first(store)


@overload
def predict(
    run: Run | str,
    *,
    out: Path | str,
    pairs: Path | str | ArrayLike | None = None,
    top: int | None = None,
    of: Path | str | ArrayLike | None = None,
    on: DatasetLike | None = None,
    catalog: CatalogLike = None,
    **options: Unpack[PredictKeywords],
) -> Run: ...


@overload
def predict(
    run: Run | str,
    *,
    pairs: Path | str | ArrayLike,
    out: None = None,
    on: DatasetLike | None = None,
    catalog: CatalogLike = None,
    **options: Unpack[PredictKeywords],
) -> pd.DataFrame: ...


@overload
def predict(
    run: Run | str,
    *,
    top: int,
    of: Path | str | ArrayLike | None = None,
    out: None = None,
    on: DatasetLike | None = None,
    catalog: CatalogLike = None,
    **options: Unpack[PredictKeywords],
) -> pd.DataFrame: ...


@overload
def predict(
    run: Run | str,
    *,
    out: None = None,
    on: DatasetLike | None = None,
    catalog: CatalogLike = None,
    **options: Unpack[PredictKeywords],
) -> Run: ...


@with_options(predict_options())
def predict(
    run: Run | str, *, on: DatasetLike | None = None, catalog: CatalogLike = None, **options: Any
) -> Run | pd.DataFrame:
    """Predict the class of every vertex with a checkpoint of a run, and store the predictions with the run.

    A run on pairs stores a vector for every vertex instead, from which ``run.score`` and ``run.top`` score any pairs;
    ``pairs`` and ``top`` score pairs that are given by the ids of the source.

    Inside an MPI job the call is collective, like :func:`train`.

    >>> run = gnnloom.predict("web/first")
    >>> run.predictions().shape, run.scores().shape
    ((200,), (200, 4))

    Args:
        run: the run, or ``DATASET/RUN``.
        on: another dataset of the catalog to predict on, with the same features; by default the dataset of the run.
        catalog: where to look for the name of a run; as for :func:`train`.
        options: as in ``gnnloom predict --help``. ``model`` and ``decoder`` name the model and the decoder of the run,
            as ``package.module:Class``. They are required for your own code and for PyG: anybody may have written the
            configuration of a stored run, so code is imported only if the call names it. A run that :func:`train` or
            this function returned remembers the names in that call. ``ranks`` is by default as in training, and inside
            an MPI job the number of all of its ranks. ``out`` is a file for the classes: ``.npy`` in the order of the
            vertices, or ``.npz``, ``.parquet`` or ``.csv`` with the ids of the source. With ``smooth``, the file has
            the smoothed classes, and with ``pairs`` or ``top`` the scores of pairs. ``pairs`` is a file, or (num_pairs,
            2) ids or names in a data frame, an array or a list; ``of`` is a file, or (num_vertices,) ids or names.
            Sizes such as ``evaluation_memory`` are bytes.

    Returns:
        The run, with ``predictions()``, ``scores()`` and, if asked for, ``embeddings()`` and
        ``predictions(smoothed=True)``. With ``on``, ``graph`` or ``vertices``, a run in the dataset of the given graph,
        which has the weights of ``run`` and the predictions for this graph. With ``pairs`` or ``top`` and without
        ``out``, a data frame instead, with the rows and columns of the file.

    Raises:
        NotFoundError: there is no such run, graph, checkpoint, shards or file.
        InputError: the suffix of ``out`` is unknown, the run does not predict pairs, or the graph does not fit the run;
            or inside an MPI job, ``pairs`` or ``top`` without ``out``.
        MissingPackageError: a data frame is to be returned, and pandas is not installed.
        LaunchError: the ranks failed.
        CollectiveError: inside an MPI job: any of these errors, raised on every rank.
    """
    known = predict_options()
    check_known("predict", options, known)
    given = {
        name: Path(value) if known[name].kind is Path and isinstance(value, str) else value
        for name, value in options.items()
    }
    found = Run.open(run, catalog) if isinstance(run, str) else run
    own, of_graph, of_pairs, smoothing = split_fields(given, PredictOptions, Elsewhere, PairRequest)
    code = found.code(model=own.get("model"), decoder=own.get("decoder"))
    named = {name: each for name, each in code.items() if each is not None}
    asked = PredictOptions(**{**own, **code})
    if own.get("model") or own.get("decoder"):
        found = Run(found.dataset, found.name, named)
    there = None if on is None else as_dataset(on, found.dataset.path.parent).name
    wanted, other = PairRequest(**of_pairs), Elsewhere(on=there, **plain_values(of_graph))
    frames: list[pd.DataFrame] = []
    take = None if asked.out is not None else lambda table: frames.append(frame_of(table))
    with ranks_of_job("gnnloom predict") as here:
        if wanted and asked.out is None and here.comm is not None:
            raise InputError("out: name a file for the scores of the pairs, which only one rank of an MPI job has")
        opened = partial(StoredRun.open, found.dataset, found.name)
        result = predict_run(here, lambda: (found.dataset, opened()), asked, smoothing, wanted, other, take=take)
    if frames:
        return frames[0]
    return Run(as_dataset(result["dataset"], found.dataset.path.parent), result["run"], named) if other else found


def predict_run(
    here: Ranks,
    find: Callable[[], tuple[StoredDataset, StoredRun]],
    options: PredictOptions,
    smoothing: Mapping[str, Any],
    wanted: PairRequest,
    elsewhere: Elsewhere,
    say: Callable[[StoredDataset, StoredRun], None] | None = None,
    take: Callable[[Table], None] | None = None,
) -> dict[str, Any]:
    """Predict, and write the classes or the scores of pairs to a file. Collective in an MPI job.

    Args:
        find: opens the dataset and the run.
        smoothing: fields of a :class:`~gnnloom.trainer.config.smoothing_config.SmoothingConfig`.
        wanted: pairs to score with the predictions, in one process; or targets to find, on all ranks.
        elsewhere: another graph to predict on.
        say: called with the dataset and the predicting run, after the options have been checked.
        take: called on the first rank with the table of the scores of pairs.

    Returns:
        The output of ``gnnloom predict --json``, the same on every rank.
    """

    def find_checked() -> tuple[StoredDataset, StoredRun]:
        dataset, run = find()
        check_file(options.out, safe_csv=options.safe_csv)
        wanted.check(run)
        return dataset, run

    opened = moved_to(here, find_checked, elsewhere, options.checkpoint, options.ranks)

    def settle() -> tuple[StoredDataset, StoredRun, PredictConfig]:
        asked = {**options.of_ranks, **smoothing, "ranks": here.number(options.ranks)}
        dataset, run = opened()
        if say is not None:
            say(dataset, run)
        if elsewhere and run.path != find()[1].path:
            # A copy has one checkpoint.
            asked["checkpoint"] = "auto"
        return dataset, run, PredictConfig.of_run(dataset, run, **asked)

    dataset, run, config = here.agree(settle, lambda settled: settled[2].to_json())
    result = {"dataset": dataset.name} if elsewhere else {}
    # The ranks that find targets first predict.
    result |= here.predict(config) if wanted.top is None else {}
    result |= write_asked(here, dataset, run, config, wanted, options.out, safe_csv=options.safe_csv, take=take)
    return result if options.out is None else {**result, "out": str(options.out)}
