"""`gnnloom export`: contents of a dataset as files for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnnloom.workflows.cli.terminal.options import click_option, current_catalog, json_option, open_run, split_run
from gnnloom.workflows.cli.terminal.output import show
from gnnloom.workflows.interop.chosen_table import chosen_table
from gnnloom.workflows.interop.export import DATASET_TABLES, RUN_TABLES
from gnnloom.workflows.interop.tables import SAFE_CSV, check_file, write_table


@click.command("export")
@click.argument("name", metavar="NAME[/RUN]")
@click.argument("what", type=click.Choice((*RUN_TABLES, *DATASET_TABLES)))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Output file: .npy, .npz, .parquet or .csv.",
)
@click.option(
    "--run", default=None, help="Run whose predictions, scores, embeddings or metrics to export; the same as NAME/RUN."
)
@click_option(SAFE_CSV)
@click.option("--parts", type=click.IntRange(min=1), default=None, help="Number of parts of the partition.")
@click.option("--method", default=None, help="Method of the partition, if there are several.")
@click.option(
    "--key",
    "--graph",
    "--vertices",
    "--partition",
    "--links",
    "key",
    metavar="KEY",
    default=None,
    help="Key of the graph, vertex data, partition or links, if the dataset has several.",
)
@click.option("--relation", default=None, metavar="NAME", help="In a graph with types, relation whose edges to export.")
@json_option
def export_command(
    name: str,
    what: str,
    out: Path,
    run: str | None,
    safe_csv: bool,
    **chosen: Any,
) -> None:
    """Export predictions, embeddings, metrics, features, labels, parts, edges or pairs of NAME for other programs.

    .csv, .parquet and .npz files have a column with the vertex ids of the source files. A .npy file has only the
    values, in the order of the vertices; for edges, it has sources and targets. If ids are names, a .npz file has no
    column of ids, and .npz and .npy files identify the ends of edges and pairs by vertex number. Exported pairs have
    their split and, in a graph with types, the columns of their edges. Files are written in pieces, so that exporting
    takes little memory.

    \b
    Example:
      gnnloom export web/first predictions --out predictions.parquet
      gnnloom export web/first embeddings --out embeddings.npy
      gnnloom export web/first metrics --out metrics.parquet
      gnnloom export web partition --parts 4 --out part.csv
      gnnloom export web edges --out edges.parquet
      gnnloom export shop edges --relation buys --out buys.parquet
      gnnloom export shop pairs --links 4af5 --out pairs.csv
    """
    dataset_name, run = split_run(name, run)
    if run is not None and what not in RUN_TABLES:
        raise click.UsageError(f"{what} does not take a run")
    check_file(out, safe_csv=safe_csv)
    dataset = current_catalog()[dataset_name]
    table = chosen_table(dataset, what, lambda: open_run(dataset_name, run)[1], **chosen)
    write_table(table, out, safe_csv=safe_csv)
    content = {
        "dataset": dataset_name,
        "what": what,
        "file": str(out),
        "rows": table.length,
        "columns": list(dict.fromkeys(column.name for column in table.columns)),
        "bytes": out.stat().st_size,
    }
    show(content, title=f"{what} of {dataset_name}")
