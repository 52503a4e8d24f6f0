"""Trains and predicts, on new MPI ranks of this machine or on those of the job that calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnnloom.storage.runs.run import Run as StoredRun
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import launch, launch_prediction
from gnnloom.workflows.api.catalog import CatalogLike, DatasetLike, as_dataset
from gnnloom.workflows.api.ranks import is_first_rank, once_per_job, ranks_of_job
from gnnloom.workflows.api.run import Run
from gnnloom.workflows.api.train_options import training_fields, with_train_options
from gnnloom.workflows.interop.export import write_predictions
from gnnloom.workflows.interop.tables import check_file


@with_train_options
def train(dataset: DatasetLike, *, catalog: CatalogLike = None, **options: Any) -> Run:
    """Train on the whole graph of a dataset; every rank reads only its own shards.

    The ranks are new processes of this machine, which end with this call; scripts and notebooks need no
    ``if __name__ == "__main__":`` for it. Inside an MPI job (``mpirun -n 4 python -m mpi4py script.py``) the call is
    collective: the ranks of the job train, and ``ranks`` is their number by default.

    Progress is logged to the logger ``gnnloom.trainer`` at level INFO.

    Args:
        dataset: the dataset or its name.
        catalog: the catalog or its directory; by default ``$GNNLOOM_CATALOG``, or else ``./catalog``.
        options: options of the training, as in ``gnnloom train --help``. Widths of layers are a tuple or list; one
            number stands for one hidden layer.

    Returns:
        The run.

    Raises:
        InputError: an option is unknown, has a wrong value, or does not fit the dataset.
        NotFoundError: the dataset or its shards do not exist.
        ExistsError: a run of this name was made with other options, or another process is writing it.
        LaunchError: there is no mpiexec, or the ranks failed. ``StoppedError``, one of its kinds: the training was
            asked to stop, and wrote a checkpoint.
        CollectiveError: inside an MPI job: any of these errors, raised on every rank.
    """
    found, size = as_dataset(dataset, catalog), ranks_of_job()
    given = ({"ranks": size} if size > 1 else {}) | training_fields(options)
    config = TrainConfig(catalog=str(found.path.parent), dataset=found.name, **given)
    if size > 1:
        # This import starts MPI, which only the ranks of a job may do.
        from gnnloom.workflows.run.in_place import train_in_place

        return Run(found, train_in_place(config)["run"])
    return Run(found, launch(config)["run"])


def predict(
    run: Run | str,
    *,
    ranks: int | None = None,
    out: Path | str | None = None,
    embeddings: bool = False,
    catalog: CatalogLike = None,
) -> Run:
    """Predict the class of every vertex with the last checkpoint of a run, and store the predictions with the run.

    Inside an MPI job the call is collective, as :func:`train`.

    Args:
        run: the run, or ``DATASET/RUN``.
        ranks: number of MPI ranks; by default those of the training, inside an MPI job all of its ranks.
        out: file to export the classes to: ``.npy`` in the order of the vertices, or ``.npz``, ``.parquet`` or ``.csv``
            with the ids of the source.
        embeddings: store the output of the last hidden layer too.
        catalog: where to look for the name of a run; as for :func:`train`.

    Returns:
        The run, with ``predictions()``, ``scores()`` and, if asked for, ``embeddings()``.

    Raises:
        NotFoundError: there is no such run, checkpoint or shards.
        InputError: the suffix of ``out`` is unknown.
        LaunchError: the ranks failed.
        CollectiveError: inside an MPI job: any of these errors, raised on every rank.
    """
    found, size = Run.open(run, catalog) if isinstance(run, str) else run, ranks_of_job()
    file = None if out is None else Path(out)
    check_file(file)
    stored = StoredRun.open(found.dataset, found.name)
    if size > 1:
        # This import starts MPI, which only the ranks of a job may do.
        from gnnloom.workflows.run.in_place import predict_in_place

        config = PredictConfig.of_run(found.dataset, stored, ranks=ranks or size, embeddings=embeddings)
        predict_in_place(config)
    else:
        launch_prediction(found.dataset, found.name, ranks, embeddings=embeddings)
    if file is not None:
        once_per_job(lambda: write_predictions(found.dataset, stored, file) if is_first_rank() else None)
    return found
