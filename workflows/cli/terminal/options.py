"""Makes click options from the options of stages, and groups of options that several commands share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.option import Group, Option, options_of
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.cli.terminal.help import DerivedOption

Command = TypeVar("Command", bound=Callable[..., Any])
#: Placeholder for the name of a folder.
FOLDER = "DIRECTORY"
#: Key of the main command's context that stores whether JSON was requested.
JSON: Final = "gnnloom.json"
#: Names of types of values in help.
_KINDS = {int: "integer", float: "float", tuple[int, ...]: "integers", tuple[str, ...]: "names"}


class OptionType(click.ParamType[Any, object]):
    """Converts text on the command line to values of an option.

    Args:
        checks: also refuse numbers out of range; False if the command itself refuses them.
    """

    def __init__(self, option: Option, *, checks: bool = True) -> None:
        self._read = option.parse if checks or option.is_list else option.read
        self._prefix = f"{option.name} "
        kind = "size" if option.is_size else "sizes" if option.lengths else _KINDS.get(option.kind, "text")
        self.name = "|".join([kind, *option.words])

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except InputError as error:
            self.fail(str(error).removeprefix(self._prefix), param, ctx)


class OptionChoice(click.Choice[str]):
    """One of the choices, a word that stands for a choice, or the name of a user's object to import."""

    def __init__(self, option: Option) -> None:
        super().__init__(option.choices)
        self._option = option

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        value = self._option.current(value)
        return str(value) if self._option.allows(value) else super().convert(value, param, ctx)

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        own = " It may also be a class of yours, as package.module:NAME." if self._option.importable else ""
        return super().get_invalid_choice_message(value, ctx) + own


def click_option(
    option: Option, parameter: str = "", *, checks: bool = True, multiple: bool = False, **others: Any
) -> Callable[[Command], Command]:
    """Add an option to a command.

    Args:
        parameter: name of the command's parameter; by default the option's name on the command line.
        checks: see :class:`OptionType`.
        multiple: the option may be given several times; the command gets a tuple.
        others: further arguments of :func:`click.option`.
    """
    name = f"--{option.flag.replace('_', '-')}"
    text = f"{option.sentence}  [default: {option.default_text}]" if option.default_text else option.sentence
    details: dict[str, Any] = {"cls": DerivedOption, "declared": option, "help": text, **others}
    parameter = parameter or option.flag
    if option.kind is bool and not option.flag_name and (option.deniable or option.default is True):
        names = f"{name}/--no-{name.removeprefix('--')}"
        # Neither flag by default if the option can be negated: None differs from both True and False.
        on = None if option.deniable else True
        return click.option(names, parameter, default=on, show_default=not option.deniable, **details)
    if option.kind is bool:
        return click.option(name, parameter, is_flag=True, **details)
    needed = option.default is dataclasses.MISSING
    if not needed and option.default is not None:
        details["default"] = option.shown(option.default)
    return click.option(
        name,
        parameter,
        type=_type(option, checks=checks),
        multiple=multiple,
        show_default=bool(details.get("default")),
        required=needed,
        envvar=option.variable,
        metavar=option.metavar,
        **details,
    )


class _PathOrUrl(click.Path):
    """A path or a URL; a path would drop one of a URL's two slashes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from gnnloom.pipeline.sources.reading.files import is_local

        is_url = isinstance(value, str) and not is_local(value)
        return value if is_url else super().convert(value, param, ctx)


def _type(option: Option, *, checks: bool) -> click.ParamType[Any, Any]:
    if option.kind is Path:
        is_folder = option.metavar == FOLDER
        return _PathOrUrl(file_okay=not is_folder, dir_okay=is_folder, path_type=Path)
    return OptionChoice(option) if option.choices else OptionType(option, checks=checks)


def add_options(options: Iterable[Option], *, checks: bool = True) -> Callable[[Command], Command]:
    """Add options to a command, which gets each by its name on the command line."""

    def add(command: Command) -> Command:
        # Decorators apply from the bottom up.
        for option in reversed(list(options)):
            command = click_option(option, checks=checks)(command)
        return command

    return add


def object_option(
    parameter: str, kind: type[Any], options: Mapping[str, Option] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options that are fields of a dataclass to a command, which gets an object of it as one argument.

    Args:
        options: the options by field; by default all of the dataclass.
    """
    found = options_of(kind) if options is None else options

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_object(**given: Any) -> None:
            values = {name: given.pop(option.flag) for name, option in found.items()}
            command(**{parameter: kind(**values)}, **given)

        return add_options(found.values())(with_object)

    return add


def json_option(command: Command) -> Command:
    """Add ``--json``: one JSON object on standard output and nothing else there; see ``output.show``."""
    option = Option("json", bool, "Print one JSON object and nothing else.", False, group=Group.OUTPUT)

    def remember(context: click.Context, _: click.Parameter, value: bool) -> None:
        context.meta[JSON] = value

    return click_option(option, "as_json", callback=remember, expose_value=False)(command)


def flag_option(name: str, text: str, group: Group = Group.OUTPUT) -> Callable[[Command], Command]:
    """Add a flag of one command."""
    return click_option(Option(name, bool, text, False, group=group))


#: Suppresses the lines about how files are read, in all commands that print them.
QUIET = "Do not print how the files are read."


def key_option(kind: str, what: str | None = None) -> Callable[[Command], Command]:
    """Add ``--KIND KEY``, which chooses between several artifacts of a kind.

    Args:
        what: name of the artifact in help; by default, its kind.
    """
    text = f"Key of the {what or kind}, or its first digits, if there are several."
    return click_option(Option(kind, str, text, group=Group.INPUT, metavar="KEY"))


def links_option(command: Command) -> Command:
    """Add ``--links``, which chooses the graph without held-out links."""
    text = "Read the message graph, which lacks the held-out edges; `train --task link` reads it too."
    return flag_option("links", text, Group.INPUT)(command)


def method_option(methods: Iterable[str], text: str) -> Callable[[Command], Command]:
    """Add ``--method``, which chooses between several partitions."""
    return click_option(Option("method", str, text, group=Group.INPUT, choices=tuple(methods)))


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
    if run is not None and "/" in run:
        owner, _, run = run.partition("/")
        if owner != dataset:
            raise click.UsageError(f"--run {owner}/{run}: not a run of dataset {dataset}; write {owner}/{run} as NAME")
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
    return dataset, Run.open(dataset, run)


def existing_catalog() -> Catalog:
    """Return the catalog that ``--catalog``, or its default, names.

    Raises:
        NotFoundError: the catalog's folder does not exist.
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
