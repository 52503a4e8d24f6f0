"""What commands print: one JSON object, or tables for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table


def show(content: Mapping[str, Any], *, as_json: bool, title: str, hide: Iterable[str] = ()) -> None:
    """Print a result: as JSON whole, for people as a table; a list shows its bounds.

    Args:
        hide: names that the table leaves out.
    """
    if as_json:
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


def show_rows(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """Print a table; all but the first column are aligned to the right."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def readable(name: str, value: Any) -> str:
    """A value with the unit that its name tells."""
    if value is None:
        return "-"
    if isinstance(value, bool | str):
        return str(value)
    if name.startswith(("bytes", "peak_memory")) or name.endswith(("_bytes", "_memory")):
        return readable_bytes(value)
    if name.endswith("seconds"):
        return readable_seconds(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def readable_bytes(count: float) -> str:
    """Bytes in a unit that keeps three digits or so."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} TiB"


def readable_seconds(seconds: float) -> str:
    """Seconds, or milliseconds below one."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
