"""`gnnloom report`: an HTML page and pictures about one or several runs."""

from __future__ import annotations

from pathlib import Path

import click

from gnnloom.workflows.cli.terminal.options import current_catalog, json_option
from gnnloom.workflows.cli.terminal.output import show_json, show_rows


@click.command("report")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--compare", is_flag=True, help="Write one report that compares the runs.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Folder of the report; for several reports, the parent of their folders.  [default: report-DATASET-RUN]",
)
@json_option
def report_command(runs: tuple[str, ...], compare: bool, out: Path | None) -> None:
    """Write a report on each RUN: one self-contained HTML page, and its pictures as PNG files.

    RUN is DATASET/RUN, DATASET if it has only one run, or the folder of a run.

    \b
    Example:
      gnnloom report web/demo
      gnnloom report --compare web/demo web/wide --out comparison
    """
    from gnnloom.workflows.api.export import report

    if compare and len(runs) < 2:
        raise click.UsageError("--compare needs at least two runs")
    files = report(*runs, compare=compare, out=out, catalog=current_catalog())
    pages = [str(file) for file in files if file.suffix == ".html"]
    pictures = [str(file) for file in files if file.suffix != ".html"]
    if not show_json({"pages": pages, "pictures": pictures}):
        show_rows(("page", "pictures"), [(name, str(len(pictures) // len(pages))) for name in pages])
