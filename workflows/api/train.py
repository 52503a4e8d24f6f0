"""Trains and predicts, on new MPI ranks of this machine or on the ranks of the calling job."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from gnnloom.storage import Catalog as StoredCatalog
from gnnloom.storage import Dataset as StoredDataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.run import Run as StoredRun
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.smoothing_config import NONE
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.typed_vertices import chosen_graph
from gnnloom.trainer.job.ranks import Ranks, ranks_of_job, settled
from gnnloom.trainer.planner.profile import LOCAL
from gnnloom.workflows.api.catalog import CatalogLike, DatasetLike, as_dataset
from gnnloom.workflows.api.options.keywords import check_known, with_options
from gnnloom.workflows.api.options.plan_options import plan_options, planned
from gnnloom.workflows.api.options.train_options import train_options, training_fields
from gnnloom.workflows.api.run import Run
from gnnloom.workflows.interop.export import write_predictions
from gnnloom.workflows.interop.given_vertices import read_pairs
from gnnloom.workflows.interop.scored_pairs import Wanted, found_targets, ranks_found, scored_pairs, wanted_sources
from gnnloom.workflows.interop.tables import Table, check_file, first_rows, write_table
from gnnloom.workflows.interop.transfer import UNKNOWN, Elsewhere, transferred

if TYPE_CHECKING:
    from gnnloom.workflows.api.options.option_types import PlanKeywords, TrainKeywords

#: Scored pairs that a command prints.
SHOWN_PAIRS = 10


@with_options(train_options())
def train(
    dataset: DatasetLike, *, restart: bool = False, catalog: CatalogLike = None, **options: Unpack[TrainKeywords]
) -> Run:
    """Train on the whole graph of a dataset, or on samples of it.

    The ranks are new processes of this machine, which end with this call; scripts and notebooks need no
    ``if __name__ == "__main__":`` for it. Inside an MPI job (``mpirun -n 4 python -m mpi4py script.py``) the call is
    collective: the ranks of the job train, and ``ranks`` is their number by default.

    Progress is logged to the logger ``gnnloom.trainer`` at level INFO.

    Args:
        dataset: the dataset or its name.
        restart: start the run over. By default, a run that exists continues from its last checkpoint, and one that has
            finished is returned as it is. Options that are not given keep the run's values, if it exists.
        catalog: the catalog or its directory; by default ``$GNNLOOM_CATALOG``, or else ``./catalog``.
        options: options of the training, as in ``gnnloom train --help``. Widths of layers are a tuple or list; one
            number stands for one hidden layer.

    Returns:
        The run.

    Raises:
        InputError: an option is unknown, has a wrong value, or does not fit the dataset.
        NotFoundError: the dataset or its shards do not exist.
        ExistsError: a run of this name was made with other options, or another process is writing it.
        LaunchError: mpiexec is missing, or the ranks failed. ``StoppedError``, one of its kinds: the training was
            asked to stop, and the same call continues it.
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
    """Store the reverses of relations that a training reads. Collective on a job's ranks."""
    # It imports the pipeline, which other trainings need not load.
    from gnnloom.workflows.api.cluster import stored_reverses

    def store() -> None:
        dataset = StoredCatalog(config.data.catalog).dataset(config.data.dataset)
        stored_reverses(dataset, chosen_graph(dataset, config.mode.vertex_data))

    ranks.on_first(store)


@with_options(plan_options())
def plan(
    dataset: DatasetLike,
    *,
    ranks: int = 2,
    memory_per_rank: int | None = None,
    profile: str = LOCAL,
    graph: str | None = None,
    catalog: CatalogLike = None,
    **options: Unpack[PlanKeywords],
) -> list[dict[str, Any]]:
    """Predict an epoch of a training on every algorithm and process grid, best first; nothing runs.

    Args:
        dataset: the dataset or its name.
        ranks: number of MPI ranks.
        memory_per_rank: bytes that a rank may take; by default those of the profile.
        profile: profile of the machine: one that ``gnnloom calibrate`` stored, ``summit``, ``perlmutter``,
            ``frontier``, ``generic``, or a JSON file.
        graph: key, to choose between several graphs.
        catalog: where to look for the name; as for :func:`train`.
        options: the model and the task, as in ``gnnloom plan --help``. Without ``precision``, both float32 and bf16 are
            planned.

    Returns:
        The ``plans`` of ``gnnloom plan --json``, from which ``pandas.DataFrame`` makes a table.

    Raises:
        InputError: an option is unknown or has a wrong value.
        NotFoundError: there is no such dataset, graph or profile.
    """
    found = as_dataset(dataset, catalog)
    check_known("plan", options, plan_options())
    fields = {"catalog": str(found.path.parent), "dataset": found.name, "ranks": ranks, **training_fields(options)}
    is_open = "precision" not in options
    config = TrainConfig.of(**fields)
    return [each.to_json() for each in planned(config, graph, profile, memory_per_rank or 0, is_open=is_open)[1]]


def predict(
    run: Run | str,
    *,
    model: str | None = None,
    decoder: str | None = None,
    ranks: int | None = None,
    out: Path | str | None = None,
    embeddings: bool = False,
    checkpoint: str = "auto",
    wait_timeout: float | None = None,
    evaluation_memory: int | None = None,
    pairs: Path | str | None = None,
    top: int | None = None,
    of: Path | str | None = None,
    smooth: str = NONE,
    smooth_steps: int | None = None,
    smooth_alpha: float | None = None,
    correct_steps: int = 50,
    correct_alpha: float = 1.0,
    correct_scale: float | str = "auto",
    on: DatasetLike | None = None,
    graph: str | None = None,
    vertices: str | None = None,
    unknown: str = UNKNOWN[0],
    safe_csv: bool = False,
    catalog: CatalogLike = None,
) -> Run:
    """Predict the class of every vertex with a checkpoint of a run, and store the predictions with the run.

    A run on pairs stores a vector for every vertex instead, from which ``run.score`` and ``run.top`` score any pairs;
    ``pairs`` and ``top`` score pairs of files.

    Inside an MPI job the call is collective, as :func:`train`.

    Args:
        run: the run, or ``DATASET/RUN``.
        model, decoder: those of the run, as ``package.module:Class``. Needed for code of your own or of PyG, which is
            imported only if the call names it: anybody may have written the configuration of a stored run. A run that
            :func:`train` or this function returned knows what that call named.
        ranks: number of MPI ranks; by default as in training, inside an MPI job all of its ranks.
        out: file to export the classes to: ``.npy`` in the order of the vertices, or ``.npz``, ``.parquet`` or ``.csv``
            with the ids of the source. With ``pairs`` or ``top``, the file for the scores of pairs.
        embeddings: store the output of the last hidden layer too.
        checkpoint: the checkpoint that predicts: ``best``, ``last``, or ``auto``, the best one if the run has one.
        wait_timeout: seconds that a rank waits for others, 0 for any time; by default as in training.
        evaluation_memory: bytes of each rank beyond which it predicts from disk; by default as in training.
        pairs: file with pairs to score, in any format of edges, by the ids of the source.
        top: number of targets to find for each vertex: those with the highest scores to which no edge of the graph
            leads from it.
        of: text file with an id in each line: the vertices to find targets for; by default all.
        smooth: smooth the classes over the edges, too: ``labels`` for label propagation, ``correct`` for
            Correct-and-Smooth. ``out`` then has the smoothed classes.
        smooth_steps: products with the adjacency that propagate labels; by default 3 with ``labels``, 50 with
            ``correct``.
        smooth_alpha: share of the neighbors in each of them; by default 0.9 with ``labels``, 0.8 with ``correct``.
        correct_steps, correct_alpha: the same of the products that propagate errors.
        correct_scale: factor of the propagated errors, or ``auto``.
        on: another dataset of the catalog to predict on, with the same features; by default that of the run.
        graph: key of the graph to predict on, of ``on`` or of the run's dataset, if there are several.
        vertices: key of the vertex data to predict with, if the graph has several.
        unknown: what becomes of vertices of another graph whose learned vectors (``embed``) the run does not have:
            ``error``, or ``zero`` for vectors of zeros.
        safe_csv: put an apostrophe before names in a ``.csv`` that a spreadsheet takes for formulas.
        catalog: where to look for the name of a run; as for :func:`train`.

    Returns:
        The run, with ``predictions()``, ``scores()`` and, if asked for, ``embeddings()`` and
        ``predictions(smoothed=True)``. With ``on``, ``graph`` or ``vertices``, a run of the dataset of the graph, which
        has the weights of the given one and predicts the vertices of this graph.

    Raises:
        NotFoundError: there is no such run, graph, checkpoint, shards or file.
        InputError: the suffix of ``out`` is unknown, the run does not predict pairs, or the graph does not fit the run.
        LaunchError: the ranks failed.
        CollectiveError: inside an MPI job: any of these errors, raised on every rank.
    """
    found = Run.open(run, catalog) if isinstance(run, str) else run
    file = None if out is None else Path(out)
    code = found.code(model=model, decoder=decoder)
    if model or decoder:
        found = Run(found.dataset, found.name, {name: given for name, given in code.items() if given is not None})
    asked: dict[str, Any] = {
        **code,
        "embeddings": embeddings,
        "checkpoint": checkpoint,
        "smooth": smooth,
        "smooth_steps": smooth_steps,
        "smooth_alpha": smooth_alpha,
        "correct_steps": correct_steps,
        "correct_alpha": correct_alpha,
        "correct_scale": correct_scale,
    }
    name = None if on is None else as_dataset(on, found.dataset.path.parent).name
    other = Elsewhere(name, graph, vertices, unknown)
    wanted = Wanted(None if pairs is None else Path(pairs), top, None if of is None else Path(of))
    if wanted and file is None:
        raise InputError("out: name a file for the scores of the pairs")
    with ranks_of_job("gnnloom predict") as here:
        result = predict_run(
            here,
            lambda: (found.dataset, StoredRun.open(found.dataset, found.name)),
            file,
            wanted,
            other,
            say=None,
            safe_csv=safe_csv,
            ranks=ranks,
            wait_timeout=wait_timeout,
            evaluation_memory=evaluation_memory,
            **asked,
        )
    if not other:
        return found
    there = as_dataset(result["dataset"], found.dataset.path.parent)
    return Run(there, result["run"], {name: given for name, given in code.items() if given is not None})


def predict_run(
    here: Ranks,
    find: Callable[[], tuple[StoredDataset, StoredRun]],
    out: Path | None,
    wanted: Wanted | None = None,
    elsewhere: Elsewhere | None = None,
    *,
    say: Callable[[StoredDataset, StoredRun], None] | None = None,
    safe_csv: bool = False,
    **asked: Any,
) -> dict[str, Any]:
    """Predict on some ranks, and write the classes, or the scores of pairs, to a file. Collective on a job's ranks.

    Args:
        find: opens the dataset and the run.
        wanted: pairs to score with the predictions, in one process; or targets to find, on all ranks.
        elsewhere: another graph to predict on.
        say: called with the dataset and the run that predicts, when the wishes have been checked.
        safe_csv: see :func:`~gnnloom.workflows.interop.tables.write_table`.
        asked: options of :meth:`~gnnloom.trainer.config.predict_config.PredictConfig.of_run`.

    Returns:
        What ``gnnloom predict --json`` prints, the same on every rank.
    """

    def transfer() -> dict[str, Any]:
        check_file(out, safe_csv=safe_csv)
        dataset, run = find()
        if wanted is not None:
            wanted.check(run)
        ranks = here.number(asked["ranks"])
        there, copy = transferred(dataset, run, elsewhere or Elsewhere(), asked["checkpoint"], ranks)
        # A copy has one checkpoint.
        kept = {} if copy.path == run.path else {"checkpoint": "auto"}
        return {"path": str(there.path), "run": copy.name, "asked": kept}

    found = here.on_first(transfer) if elsewhere else None

    def opened() -> tuple[StoredDataset, StoredRun]:
        if found is None:
            return find()
        there = StoredDataset(Path(found["path"]))
        return there, StoredRun.open(there, found["run"])

    def settle() -> tuple[StoredDataset, StoredRun, PredictConfig]:
        ranks = here.number(asked["ranks"])
        dataset, run = opened()
        check_file(out, safe_csv=safe_csv)
        if wanted is not None:
            wanted.check(run)
        if say is not None:
            say(dataset, run)
        chosen = {**asked, "ranks": ranks, **(found["asked"] if found is not None else {})}
        return dataset, run, PredictConfig.of_run(dataset, run, **chosen)

    dataset, run, config = here.agree(settle, lambda settled: settled[2].to_json())
    names = {"dataset": dataset.name} if elsewhere else {}
    if wanted is not None and wanted.top is not None:
        with ranks_found(here, config, wanted.top, lambda: wanted_sources(dataset, run, wanted.of)) as (
            summary,
            folder,
        ):
            targets = found_targets(dataset, run, folder, config.decoder)
            result = {**names, **summary, **here.on_first(lambda: _shown(targets, out, safe_csv=safe_csv))}
        return result if out is None else {**result, "out": str(out)}
    result = {**names, **here.predict(config)}
    if wanted is not None and wanted.pairs is not None:
        pairs = wanted.pairs
        result |= here.on_first(
            lambda: _shown(
                scored_pairs(dataset, run, lambda graph: read_pairs(graph, pairs), config.decoder),
                out,
                safe_csv=safe_csv,
            )
        )
    elif out is not None:
        here.on_first(
            lambda: write_predictions(dataset, run, out, smoothed=config.smoothing.smooths, safe_csv=safe_csv)
        )
    return result if out is None else {**result, "out": str(out)}


def _shown(found: AbstractContextManager[Table], out: Path | None, *, safe_csv: bool) -> dict[str, Any]:
    with found as table:
        if out is not None:
            write_table(table, out, safe_csv=safe_csv)
        return {"pairs": table.length, "first": first_rows(table, SHOWN_PAIRS)}
