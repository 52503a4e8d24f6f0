"""Contents of datasets and runs as data frames, or as files for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gnnloom.storage.errors import InputError, needing
from gnnloom.workflows.api.catalog import CatalogLike, DatasetLike, Run, as_catalog, as_dataset
from gnnloom.workflows.api.options.keywords import ArtifactLike, key_of
from gnnloom.workflows.interop.chosen_table import exported

if TYPE_CHECKING:
    import pandas as pd


def export(
    dataset: DatasetLike | Run,
    what: str,
    *,
    out: Path | str | None = None,
    run: str | None = None,
    parts: int | None = None,
    method: str | None = None,
    key: ArtifactLike | None = None,
    relation: str | None = None,
    safe_csv: bool = False,
    catalog: CatalogLike = None,
) -> pd.DataFrame | Path:
    """Export predictions, embeddings, metrics, features, labels, parts, edges or pairs, with the source's vertex ids.

    >>> list(gnnloom.export("web", "labels").columns)
    ['vertex', 'label', 'split']

    Args:
        dataset: the dataset or its name; or, for contents of a run, the run or ``DATASET/RUN``.
        what: ``predictions``, ``scores``, ``smoothed-predictions``, ``smoothed-scores``, ``embeddings`` or ``metrics``
            of a run; ``edges``, ``features``, ``labels``, ``targets``, ``partition`` or ``pairs`` of a dataset. The
            pairs of links have their split.
        out: file to write, piece by piece, in little memory: ``.npy``, ``.npz``, ``.parquet`` or ``.csv``. By default,
            the whole table becomes a data frame.
        run: name of the run, if the dataset has several and ``dataset`` does not name one.
        parts, method: number of parts and method of the partition, if there are several.
        key: the graph, vertex data, partition or links, or its key, if there are several.
        relation: of a graph with types, the relation whose edges to export, with all their columns.
        safe_csv: put an apostrophe before names in a ``.csv`` that a spreadsheet takes for formulas.
        catalog: where to look for the name; as for :func:`gnnloom.ingest`.

    Returns:
        A pandas DataFrame with the columns of the CSV file; or the path of the file.

    Raises:
        InputError: ``what`` is unknown, an option does not apply to it, or the suffix of ``out`` is unknown.
        NotFoundError: the dataset, the run or its contents do not exist.
        MissingPackageError: ``out`` is not given, and pandas is not installed.
    """
    if isinstance(dataset, Run):
        found, named = dataset.dataset, dataset.name
    else:
        owner, _, of_name = dataset.partition("/") if isinstance(dataset, str) else (dataset, "", "")
        found, named = as_dataset(owner, catalog), of_name or run or ""

    def opened() -> Run:
        return found.run(named or None)

    return exported(found, what, out, opened, parts, method, key_of(key), relation, safe_csv=safe_csv)


def report(
    *runs: Run | str, compare: bool = False, out: Path | str | None = None, catalog: CatalogLike = None
) -> list[Path]:
    """Write a report on each run, or one report that compares the runs: an HTML page, and its pictures as PNG files.

    Args:
        runs: runs, ``DATASET/RUN``, ``DATASET`` if it has only one run, or folders of runs.
        compare: write one report that compares the runs.
        out: folder of the report; for several reports, the parent of their folders. By default ``report-DATASET-RUN``
            in the current directory.
        catalog: where to look for names; as for :func:`gnnloom.ingest`.

    Returns:
        Paths of the written files; the names of pages end in ``.html``.

    Raises:
        InputError: no run is given, or only one run to compare; or no epoch of a run has finished.
        NotFoundError: there is no such run.
        ExistsError: ``out`` exists and is not a report.
        MissingPackageError: Matplotlib is not installed.
    """
    if len(runs) < 1 + compare:
        raise InputError(f"report: expected at least {'two runs to compare' if compare else 'one run'}")
    # Matplotlib is optional: it comes with the extra `report`.
    with needing("a report", "gnnloom[report]"):
        from gnnloom.workflows.report.build import write_comparison, write_report
        from gnnloom.workflows.report.facts import RunFacts, open_run
    where, folder = as_catalog(catalog), None if out is None else Path(out)
    found = [RunFacts.gather(run.dataset, run.name) if isinstance(run, Run) else open_run(where, run) for run in runs]
    titles = [f"{facts.dataset.name}-{facts.run.name}" for facts in found]
    if compare:
        return write_comparison(found, folder or Path(f"report-{'-and-'.join(titles[:2])}"))
    if len(found) == 1:
        return write_report(found[0], folder or Path(f"report-{titles[0]}"))
    parent = folder or Path()
    written = [write_report(facts, parent / f"report-{title}") for facts, title in zip(found, titles, strict=True)]
    return [file for files in written for file in files]
