"""`gnnloom report`: an HTML page and pictures about one run or several."""

from __future__ import annotations

from pathlib import Path

import click

from gnnloom.storage.errors import MissingPackageError
from gnnloom.workflows.cli.terminal.options import current_catalog, json_option
from gnnloom.workflows.cli.terminal.output import show, show_rows


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
def report_command(runs: tuple[str, ...], compare: bool, out: Path | None, as_json: bool) -> None:
    """Write a report on each RUN: one self-contained HTML page, and its pictures as PNG files.

    RUN is DATASET/RUN, DATASET if it has only one run, or the folder of a run.

    \b
    Example:
      gnnloom report web/demo
      gnnloom report --compare web/demo web/wide --out comparison
    """
    if compare and len(runs) < 2:
        raise click.UsageError("--compare needs at least two runs")
    files = _write(runs, compare, out)
    pages = [str(file) for file in files if file.suffix == ".html"]
    pictures = [str(file) for file in files if file.suffix != ".html"]
    if as_json:
        show({"pages": pages, "pictures": pictures}, as_json=True, title="")
    else:
        show_rows(("page", "pictures"), [(name, str(len(pictures) // len(pages))) for name in pages])


def _write(names: tuple[str, ...], compare: bool, out: Path | None) -> list[Path]:
    try:
        from gnnloom.workflows.report.build import write_comparison, write_report
        from gnnloom.workflows.report.facts import open_run
    except ModuleNotFoundError as error:
        # Matplotlib is optional: it comes with the extra `report`.
        raise MissingPackageError(f"a report needs {error.name}: `pip install 'gnnloom[report]'`") from error
    runs = [open_run(current_catalog(), name) for name in names]
    titles = [f"{facts.dataset.name}-{facts.run.name}" for facts in runs]
    if compare:
        return write_comparison(runs, out or Path(f"report-{'-and-'.join(titles[:2])}"))
    if len(runs) == 1:
        return write_report(runs[0], out or Path(f"report-{titles[0]}"))
    written = [
        write_report(facts, (out or Path()) / f"report-{title}") for facts, title in zip(runs, titles, strict=True)
    ]
    return [file for files in written for file in files]
