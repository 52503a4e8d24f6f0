"""`gnnloom export`: what a dataset holds as files for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from gnnloom.storage import Dataset
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.cli.options import current_catalog, json_option
from gnnloom.workflows.cli.output import show
from gnnloom.workflows.interop.export import edge_table, partition_table, run_table, vertices_table
from gnnloom.workflows.interop.tables import Table, check_file, write_table

_OF_RUNS = ("predictions", "scores", "embeddings")
_OF_DATASETS = ("edges", "features", "labels", "partition")


@click.command("export")
@click.argument("name")
@click.argument("what", type=click.Choice((*_OF_RUNS, *_OF_DATASETS)))
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="File: .npy, .npz, .parquet or .csv."
)
@click.option("--run", default=None, help="Of predictions, scores and embeddings: the run that made them.")
@click.option("--parts", type=click.IntRange(min=1), default=None, help="Of a partition: its number of parts.")
@click.option("--method", default=None, help="Of a partition, where there are several.")
@click.option("--key", default=None, help="Of the graph, vertex data or partition, where there are several.")
@json_option
def export_command(
    name: str,
    what: str,
    out: Path,
    run: str | None,
    parts: int | None,
    method: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Write WHAT of dataset NAME to a file for other programs.

    .csv, .parquet and .npz name every vertex as the source of the edges did; .npy has the bare numbers in the order
    of the vertices, of edges their sources and targets. Little is in memory at once.

    \b
    Example:
      gnnloom export web predictions --run first --out predictions.parquet
      gnnloom export web embeddings --run first --out embeddings.npy
      gnnloom export web partition --parts 4 --out part.csv
      gnnloom export web edges --out edges.parquet
    """
    if (what in _OF_RUNS) != (run is not None):
        raise click.UsageError(f"{what}: {'give its' if run is None else 'has no'} --run")
    if run is not None and key is not None:
        raise click.UsageError(f"{what}: --key does not go with --run, which knows its artifacts")
    if what != "partition" and (parts is not None or method is not None):
        raise click.UsageError("--parts and --method are of a partition")
    check_file(out)
    dataset = current_catalog()[name]
    table = (
        run_table(dataset, Run.open(dataset, run), what)
        if run is not None
        else _table(dataset, what, parts, method, key)
    )
    write_table(table, out)
    content = {
        "dataset": name,
        "what": what,
        "file": str(out),
        "rows": table.length,
        "columns": [column.name for column in table.columns],
        "bytes": out.stat().st_size,
    }
    show(content, as_json=as_json, title=f"{what} of {name}")


def _table(dataset: Dataset, what: str, parts: int | None, method: str | None, key: str | None) -> Table:
    if what == "edges":
        return edge_table(dataset.graph(key))
    if what == "partition":
        return partition_table(dataset, parts, method, key)
    return vertices_table(dataset, what, key)
