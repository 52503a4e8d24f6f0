"""Output of commands: one JSON object, or tables for people."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click
from rich.cells import cell_len
from rich.console import Console  # noqa: TID251 - a type; `screen` makes it
from rich.measure import Measurement
from rich.table import Table

from gnnloom.pipeline.sources.understood import Understood, summary_lines
from gnnloom.storage.wording import counted, printable
from gnnloom.workflows.cli.terminal import screen
from gnnloom.workflows.cli.terminal.options import JSON
from gnnloom.workflows.cli.terminal.screen import say, text
from gnnloom.workflows.formatting import readable

#: Key of the main command's context that stores the time at which it was called.
STARTED: Final = "gnnloom.started"

#: Longer cells than this are prose, which may be folded.
_PROSE_WIDTH = 32

#: Longer lists of names are not shown.
_MOST_ITEMS = 8


def show_json(content: Mapping[str, Any]) -> bool:
    """Print a result as a JSON object if the user asked for JSON; returns whether it was printed."""
    if wants_json():
        # NaN and Infinity are not JSON, and other parsers refuse them.
        click.echo(json.dumps(_timed(content), allow_nan=False))  # noqa: TID251 - JSON has escapes of its own
    return wants_json()


def show(content: Mapping[str, Any], *, title: str, hide: Iterable[str] = (), brief: Sequence[str] = ()) -> None:
    """Print a result: the whole result as JSON if requested, or as a table, which shows the range of a list.

    A result with ``seconds`` (of its tasks) also gets ``command_seconds``: the time since the command was called.

    Args:
        hide: names that the table omits.
        brief: names that the table has, in this order, unless the user wants all (``gnnloom -v``); none for all names
            except identifiers of the result: its dataset, which the title names, keys and digests.
    """
    if show_json(content):
        return
    content = _timed(content)
    table = Table(show_header=False)
    table.add_column(style="cyan")
    # A path is shown whole, so that it can be copied.
    table.add_column(justify="right", overflow="fold")
    hidden = set(hide)
    listed = [name for name, value in content.items() if name not in hidden and not isinstance(value, dict)]
    if is_verbose():
        shown = listed
    elif brief:
        shown = [name for name in brief if name in listed]
    else:
        shown = [name for name in listed if name != "dataset" and not name.endswith(("key", "digest"))]
    for name in shown:
        table.add_row(text(name.replace("_", " ")), text(_cell(name, content[name])))
    console = screen.console()
    _print_title(console, title)
    console.print(table)
    if len(shown) < len(listed):
        console.print(text(("dim", f"{counted(len(listed) - len(shown), 'more figure')} (gnnloom -v ... shows all)")))


def _timed(content: Mapping[str, Any]) -> Mapping[str, Any]:
    context = click.get_current_context(silent=True)
    started = None if context is None else context.meta.get(STARTED)
    if "seconds" not in content or started is None:
        return content
    return {**content, "command_seconds": round(time.perf_counter() - started, 3)}


def wants_json() -> bool:
    """Whether the user asked for JSON (``--json``)."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(JSON))


def is_verbose() -> bool:
    """Whether the user asked for everything (``gnnloom -v``)."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.find_root().params.get("verbose"))


def _cell(name: str, value: Any) -> str:
    if not isinstance(value, list):
        return readable(name, value)
    if not all(isinstance(item, int | float) for item in value) or not value:
        return ", ".join(map(str, value)) if len(value) <= _MOST_ITEMS else counted(len(value), "value")
    lowest, highest = readable(name, min(value)), readable(name, max(value))
    return lowest if lowest == highest else f"{lowest} to {highest}"


def show_rows(
    columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, *, on_stderr: bool = False
) -> None:
    """Print a table, with names and prose on the left and figures on the right; without lines if it is too wide."""
    # Columns without names need no header line.
    console = screen.console(on_stderr=on_stderr)
    table = Table(show_header=any(columns))
    listed = [[printable(cell) for cell in row] for row in rows]
    _fill(table, columns, listed)
    if _width(console, table).maximum > console.width:
        _fix_widths(table, listed)
        if _width(console, table).minimum > console.width:
            _print_without_lines(console, columns, listed, title)
            return
    _print_title(console, title)
    console.print(table)


def show_groups(columns: Sequence[str], groups: Mapping[str, Iterable[Sequence[str]]], title: str) -> None:
    """Print a table without lines, with a heading for each group of rows, which are indented."""
    rows: list[Sequence[str]] = []
    for group, each in groups.items():
        rows.append((group, *[""] * (len(columns) - 1)))
        rows += [(f"  {printable(first)}", *map(printable, others)) for first, *others in each]
    _print_without_lines(screen.console(), columns, rows, title)


def _print_without_lines(
    console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None
) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    _fill(table, columns, rows)
    _fix_widths(table, rows)
    _print_title(console, title)
    console.print(table)


def _print_title(console: Console, title: str | None) -> None:
    # A title of the table itself would be folded at the table's width.
    if title is not None:
        console.print(text(("bold", title)))


def _fill(table: Table, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for number, column in enumerate(columns):
        is_text = number == 0 or _widest(rows, number) > _PROSE_WIDTH
        table.add_column(text(column), justify="left" if is_text else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(text, row))


def _fix_widths(table: Table, rows: Sequence[Sequence[str]]) -> None:
    """Allow only prose and headings to be folded: a name or a number is hard to read in pieces."""
    for number, column in enumerate(table.columns):
        widest = _widest(rows, number)
        if widest <= _PROSE_WIDTH:
            column.width = max([widest, *map(cell_len, str(column.header).split())])


def _widest(rows: Sequence[Sequence[str]], column: int) -> int:
    return max((cell_len(row[column]) for row in rows), default=0)


def _width(console: Console, table: Table) -> Measurement:
    """The least and the largest useful width of a table, on a console of any width."""
    return console.measure(table, options=console.options.update(max_width=10_000))


def say_understood(understood: Sequence[Understood]) -> None:
    """Print how files are read."""
    for line in summary_lines(understood):
        say(line, on_stderr=True)
