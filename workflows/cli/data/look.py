"""`gnnloom look`: shows how files would be read, before anything is stored."""

from __future__ import annotations

from typing import Any

import click

from gnnloom.workflows.api.look import find_reading
from gnnloom.workflows.cli.data.ingest import FORMAT, FORMAT_OPTIONS
from gnnloom.workflows.cli.data.source_options import given_values
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import add_options, click_option, json_option
from gnnloom.workflows.cli.terminal.output import show_json, show_rows
from gnnloom.workflows.cli.terminal.screen import say

_LOOK_HELP = """Print how FILES would be read, their first rows, and the command that stores them.

Nothing is stored. The options are the options of `gnnloom ingest`.

\b
Example:
  gnnloom look calls.csv
  gnnloom look calls-*.parquet --columns caller,callee
"""


@click.command("look", cls=GroupedCommand, help=_LOOK_HELP)
@click.argument("files", nargs=-1, required=True)
@click_option(FORMAT, "format_name")
@add_options(FORMAT_OPTIONS.values())
@json_option
def look_command(files: tuple[str, ...], format_name: str | None, **_: Any) -> None:
    """Print how files would be read."""
    values = given_values(FORMAT_OPTIONS)
    found = find_reading(files, format_name, values)
    if show_json(found.to_json()):
        return
    for each in found.files:
        for line in each.lines():
            say(line)
        if each.rows:
            show_rows(each.columns, each.rows)
    for line in found.commands():
        say(line)
