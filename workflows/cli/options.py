"""Option types and groups of options that several commands share."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from gnnloom.pipeline.tasks.cluster import ClusterOptions
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.parsing import parse_bytes

Command = TypeVar("Command", bound=Callable[..., Any])


class MemorySize(click.ParamType[int, object]):
    """An amount of memory in bytes, written like ``512M``, ``1G`` or ``1.5GiB`` (powers of 1024)."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_bytes(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Fanouts(click.ParamType[tuple[int, ...], object]):
    """Numbers of neighbors separated by commas, such as ``15,10,5``; -1 stands for all."""

    name = "fan-outs"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            fanouts = tuple(int(fanout) for fanout in str(value).split(",") if fanout.strip())
        except ValueError:
            # Fails the check below, which has the message.
            fanouts = (0,)
        if any(fanout < 1 and fanout != -1 for fanout in fanouts):
            self.fail(f"{value!r} is not a list of numbers from 1 upwards, or -1, such as 15,10,5", param, ctx)
        return fanouts


class Worded(click.ParamType[int, object]):
    """An integer, or a word that stands for one."""

    def __init__(self, words: Mapping[str, int]) -> None:
        self._words = words
        self.name = "|".join(("integer", *words))

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return self._words[str(value)] if value in self._words else int(str(value))
        except ValueError:
            self.fail(f"{value!r} is not an integer, or {', '.join(self._words)}", param, ctx)


class Widths(click.ParamType[tuple[int, ...], object]):
    """Layer widths separated by commas, such as ``128,128``."""

    name = "widths"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            widths = tuple(int(width) for width in str(value).split(",") if width.strip())
        except ValueError:
            # Fails the check below, which has the message.
            widths = (0,)
        if any(width < 1 for width in widths):
            self.fail(f"{value!r} is not a list of positive widths such as 128,128", param, ctx)
        return widths


class Names(click.ParamType[tuple[str, ...], object]):
    """Names separated by commas, such as ``tensorboard,mlflow``."""

    name = "names"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:  # noqa: ARG002
        if isinstance(value, tuple):
            return value
        return tuple(name.strip() for name in str(value).split(",") if name.strip())


class Sizes(click.ParamType[tuple[int, ...], object]):
    """Sizes along a few axes, such as ``1000x1000`` or ``50x50x50``.

    Args:
        fewest, most: allowed number of axes.
    """

    name = "sizes"

    def __init__(self, fewest: int = 2, most: int = 3) -> None:
        self._fewest, self._most = fewest, most

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        sizes = str(value).split("x")
        has_right_count = self._fewest <= len(sizes) <= self._most
        if not (has_right_count and all(re.fullmatch(r"[1-9]\d{0,8}", size) for size in sizes)):
            number = self._fewest if self._fewest == self._most else f"{self._fewest} to {self._most}"
            example = "x".join(["4"] * self._most)
            self.fail(f"{value!r} is not {number} sizes with x between them, such as {example}", param, ctx)
        return tuple(map(int, sizes))


def json_option(command: Command) -> Command:
    """Add ``--json``: one JSON object on standard output and nothing else there."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")(command)


def key_option(kind: str, what: str | None = None) -> Callable[[Command], Command]:
    """Add ``--KIND KEY``, which chooses between several artifacts of a kind.

    Args:
        what: what to call the artifact; by default, its kind.
    """
    text = f"Key of the {what or kind}, or its first digits, if there are several."
    return click.option(f"--{kind}", metavar="KEY", default=None, help=text)


def performance_report_option(command: Command) -> Command:
    """Add ``--performance-report FILE``: Dask's report on its workers."""
    return click.option(
        "--performance-report",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE.html",
        help="Write Dask's performance report on its workers to this file.",
    )(command)


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose where a stage's tasks run; the command gets them as one argument, ``cluster``."""

    @functools.wraps(command)
    def with_cluster(
        *,
        workers: int | None,
        memory: int,
        scheduler: str | None,
        performance_report: Path | None,
        scratch: Path | None,
        **others: Any,
    ) -> None:
        kind = "address" if scheduler else "local"
        command(cluster=ClusterOptions(kind, workers, memory, scheduler, performance_report, scratch), **others)

    # Decorators apply from the bottom up: the last option of this list is the first in the help.
    for option in (
        performance_report_option,
        click.option(
            "--scratch",
            type=click.Path(file_okay=False, path_type=Path),
            envvar="GNNLOOM_SCRATCH",
            help="Folder for temporary files, which all workers must share.  [default: in the dataset]",
        ),
        click.option("--scheduler", metavar="ADDRESS", help="Dask scheduler to use, such as tcp://host:8786."),
        click.option("--memory", type=MemorySize(), default="1G", show_default=True, help="Memory per worker process."),
        click.option(
            "--workers",
            type=click.IntRange(min=0),
            default=None,
            help="Number of worker processes; 0 runs everything in this process.  [default: one per core]",
        ),
    ):
        with_cluster = option(with_cluster)
    return with_cluster


def split_run(name: str, run: str | None) -> tuple[str, str | None]:
    """Split a name that may be DATASET/RUN; ``--run`` names the run as well.

    Returns:
        The names of the dataset and of the run, if one is named.

    Raises:
        UsageError: two different runs are named.
    """
    dataset, slash, named = name.partition("/")
    # `gnnloom catalog` shows a run as DATASET/runs/RUN.
    named = named.removeprefix("runs/")
    if slash and not named:
        raise click.UsageError(f"{name}: the name of a run is missing; write DATASET/RUN")
    if named and run is not None and named != run:
        raise click.UsageError(f"{name} and --run {run} name different runs; give one of them")
    return dataset, named or run


def open_run(name: str, run: str | None) -> tuple[Dataset, Run]:
    """Open a run named as DATASET/RUN, as DATASET and ``--run``, or as DATASET if it has only one run.

    Raises:
        NotFoundError: there is no such dataset or run.
        InputError: the dataset has several runs, or none.
    """
    dataset_name, run = split_run(name, run)
    dataset = current_catalog()[dataset_name]
    if run is None:
        runs = dataset.runs()
        if len(runs) != 1:
            listing = ", ".join(f"{dataset_name}/{each}" for each in runs) or "none; `gnnloom train` makes one"
            raise InputError(f"{name}: choose one run of this dataset: {listing}")
        run = runs[0]
    return dataset, Run.open(dataset, run)


def existing_catalog() -> Catalog:
    """Return the catalog that ``--catalog``, or its default, names.

    Raises:
        NotFoundError: its folder does not exist.
    """
    catalog = current_catalog()
    if not catalog.root.is_dir():
        raise NotFoundError(
            f"{catalog.root}: there is no such catalog; choose another folder with --catalog or $GNNLOOM_CATALOG, or"
            " make a dataset there with `gnnloom ingest`"
        )
    return catalog


def current_catalog() -> Catalog:
    """Return the catalog that ``--catalog``, or its default, names."""
    catalog = click.get_current_context().obj
    if not isinstance(catalog, Catalog):
        raise click.UsageError("no catalog was opened")
    return catalog
