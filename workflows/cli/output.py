"""Output of commands: one JSON object, or tables for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from gnnloom.workflows.cli.clock import command_seconds
from gnnloom.workflows.formatting import readable, readable_bytes, readable_seconds

#: Commands import everything that they print with from this module.
__all__ = ["readable", "readable_bytes", "readable_seconds", "show", "show_groups", "show_rows"]


def show(content: Mapping[str, Any], *, as_json: bool, title: str, hide: Iterable[str] = ()) -> None:
    """Print a result: all of it as JSON, or as a table, which shows the range of a list.

    A result with ``seconds``, those of its tasks, also gets ``command_seconds``: the time since the command was called.

    Args:
        hide: names that the table omits.
    """
    seconds = command_seconds()
    if "seconds" in content and seconds is not None:
        content = {**content, "command_seconds": seconds}
    if as_json:
        # NaN and Infinity are not JSON, and other parsers refuse them.
        click.echo(json.dumps(content, allow_nan=False))
        return
    table = Table(title=title, title_justify="left", show_header=False, title_style="bold")
    table.add_column(style="cyan")
    table.add_column(justify="right")
    hidden = set(hide)
    for name, value in content.items():
        if name not in hidden and not isinstance(value, dict):
            table.add_row(name.replace("_", " "), _cell(name, value))
    Console().print(table)


def _cell(name: str, value: Any) -> str:
    if not isinstance(value, list):
        return readable(name, value)
    if not value or not all(isinstance(item, int | float) for item in value):
        return f"{len(value)} values"
    lowest, highest = readable(name, min(value)), readable(name, max(value))
    return lowest if lowest == highest else f"{lowest} to {highest}"


def show_rows(
    columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, *, on_stderr: bool = False
) -> None:
    """Print a table; all columns but the first are aligned to the right."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(stderr=on_stderr).print(table)


def show_groups(columns: Sequence[str], groups: Mapping[str, Iterable[Sequence[str]]], title: str) -> None:
    """Print a table with a heading for each group of rows, and without lines, so that more columns fit."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=not number)
    for group, rows in groups.items():
        table.add_row(group, style="bold")
        for first, *others in rows:
            table.add_row(f"  {first}", *others)
    console = Console()
    # A title that belongs to the table would be folded at its width.
    console.print(title, style="bold", highlight=False)
    console.print(table)
