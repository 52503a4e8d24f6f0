"""Option types and groups of options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gnnloom.storage import Catalog

Command = TypeVar("Command", bound=Callable[..., Any])

_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class MemorySize(click.ParamType[int, object]):
    """An amount of memory in bytes, written like ``512M``, ``1G`` or ``1.5GiB`` (powers of 1024)."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", str(value), re.IGNORECASE)
        if not match:
            self.fail(f"{value!r} is not a size such as 512M or 1G", param, ctx)
        return int(float(match[1]) * 1024 ** _UNITS[match[2].upper()])


class Widths(click.ParamType[tuple[int, ...], object]):
    """Layer widths separated by commas, such as ``128,128``."""

    name = "widths"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            widths = tuple(int(width) for width in str(value).split(",") if width.strip())
        except ValueError:
            widths = (0,)
        if any(width < 1 for width in widths):
            self.fail(f"{value!r} is not a list of positive widths such as 128,128", param, ctx)
        return widths


def json_option(command: Command) -> Command:
    """``--json``: one JSON object on standard output and nothing else there."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")(command)


def cluster_options(command: Command) -> Command:
    """Where the tasks of a pipeline stage run; see :func:`cluster_of`."""
    for option in (
        click.option(
            "--scheduler", metavar="ADDRESS", help="Run on a Dask cluster that is there, e.g. tcp://host:8786."
        ),
        click.option(
            "--memory",
            type=MemorySize(),
            default="1G",
            show_default=True,
            help="Memory that one worker process may use.",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=0),
            default=None,
            help="Worker processes; 0 runs everything in this process.  [default: one per core]",
        ),
    ):
        command = option(command)
    return command


def file_argument(value: str) -> Path:
    """A path as the user typed it, with ``~`` expanded."""
    return Path(value).expanduser()


def current_catalog() -> Catalog:
    """The catalog that ``--catalog`` (or its default) names."""
    catalog = click.get_current_context().obj
    if not isinstance(catalog, Catalog):
        raise click.UsageError("no catalog was opened")
    return catalog
