"""`gnnloom export`: contents of a dataset as files for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnnloom.workflows.cli.terminal.options import current_catalog, json_option, open_run, split_run
from gnnloom.workflows.cli.terminal.output import show
from gnnloom.workflows.interop.chosen_table import chosen_table
from gnnloom.workflows.interop.export import DATASET_TABLES, RUN_TABLES
from gnnloom.workflows.interop.tables import check_file, write_table


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
    "--run", default=None, help="Run that made the predictions, scores, embeddings or metrics; NAME/RUN is the same."
)
@click.option(
    "--safe-csv",
    is_flag=True,
    help="Put an apostrophe before names in a .csv that a spreadsheet takes for formulas: names that begin with"
    " = + - @, a tab or a carriage return.",
)
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
    help="Key of the graph, vertex data, partition or links, if there are several.",
)
@click.option("--relation", default=None, metavar="NAME", help="Relation whose edges to export, of a graph with types.")
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

    .csv, .parquet and .npz files have a column with the vertex ids of the source. A .npy file has only the numbers, in
    vertex order; for edges, it has sources and targets. If ids are names, .npz files leave them out, and both formats
    hold vertex numbers for the ends of edges and pairs. Pairs of links have their split and, in a graph with types, the
    columns of their edges. Files are written piece by piece, in little memory.

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
