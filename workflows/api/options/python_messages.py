"""Rewrites error messages in the notation of Python: ``ids="names"`` instead of ``--ids names``.

The stages and sources are written for the command line; their messages name its flags. Commands in backquotes that
begin with ``gnnloom`` stay as they are, except ``gnnloom features``, which becomes the call of the function.
"""

from __future__ import annotations

import csv
import inspect
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.option import Option

Function = TypeVar("Function", bound=Callable[..., Any])

#: A command; flags in backquotes, where everything after a flag is its value; or a flag and the next word.
_PLACES: Final = re.compile(r"`gnnloom [^`]*`|`(--[^`]*)`|(?<![\w`-])--([a-z][a-z-]*)(?:([ =])([^\s`,;:()]+))?")
#: The name of data in memory in messages.
IN_MEMORY: Final = "source"
#: Keywords of the tables of graphs with types, by flag.
_TABLES: Final = {"relation": "relations", "vertices": "vertices"}
#: A next word that is a value: a number, or a placeholder.
_VALUE: Final = re.compile(r"\d[\d.,]*|[A-Z][A-Z_]+")


def speaking_python(function: Function, options: Mapping[str, Option]) -> Function:
    """The function with errors whose messages name keywords instead of flags.

    Args:
        options: options of the function by keyword, in addition to options of formats and kinds of vertex data.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except GnnloomError as error:
            parameters = inspect.signature(function).parameters.values()
            switches = {
                each.name: Option(each.name, bool)
                for each in parameters
                if each.default is False or each.annotation == "bool | None"
            }
            _reword(error, lambda text: python_text(text, {**_source_options(), **switches, **options}))
            raise

    return call  # type: ignore[return-value]


@contextmanager
def named_as(arguments: Mapping[str, str]) -> Iterator[Callable[[str], str]]:
    """Name arguments in the messages of errors, instead of the temporary files that hold them.

    Args:
        arguments: name of the argument by the location of its file.

    Yields:
        A function that names the arguments in a text.
    """

    def rename(text: str) -> str:
        for location, argument in arguments.items():
            text = text.replace(location, argument).replace(Path(location).name, argument)
        return text

    try:
        yield rename
    except GnnloomError as error:
        _reword(error, rename)
        raise


def _reword(error: GnnloomError, change: Callable[[str], str]) -> None:
    error.args = tuple(change(each) if isinstance(each, str) else each for each in error.args)


def _source_options() -> dict[str, Option]:
    # Imported here: loading all formats takes time, and only errors need it.
    from gnnloom.pipeline.sources.format import formats
    from gnnloom.pipeline.sources.vertex_data.kind import vertex_kinds

    owners = [*(each.options for each in formats().values()), *(each.options for each in vertex_kinds().values())]
    return {option.name: option for options in owners for option in options}


def features_call(command: str) -> str | None:
    """The call of ``gnnloom.features`` that does what a command does; None for other commands.

    >>> features_call("gnnloom features g --feature people.csv:age --by-id")
    'gnnloom.features("g", feature="people.csv:age", by_id=True)'
    >>> features_call("gnnloom features g --feature source:age,sex --missing mean")
    'gnnloom.features("g", feature=(source, ["age", "sex"]), missing="mean")'
    """
    try:
        # Bash's notation for names with control characters is left unchanged.
        words = [] if "$'" in command else shlex.split(command)
    except ValueError:
        return None
    if words[:2] != ["gnnloom", "features"] or len(words) < 4 or not words[3].startswith("--"):
        return None
    keywords = list[str]()
    for at, word in enumerate(words[3:], 3):
        if not word.startswith("--"):
            continue
        name, value = word[2:].replace("-", "_"), words[at + 1] if at + 1 < len(words) else "--"
        table, colon, columns = value.partition(":")
        if value.startswith("--"):
            keywords.append(f"{name.removeprefix('no_')}={not name.startswith('no_')}")
        elif table == IN_MEMORY:
            given = next(csv.reader([columns]))
            listed = ", ".join(f'"{column}"' for column in given)
            keywords.append(f"{name}=({table}, [{listed}])" if colon else f"{name}={table}")
        else:
            keywords.append(f"{name}={value}" if value.isdecimal() else f'{name}="{value}"')
    return f'gnnloom.features("{words[2]}", {", ".join(keywords)})'


def python_text(text: str, options: Mapping[str, Option]) -> str:
    """A message with keywords instead of flags.

    >>> ids = Option("ids", str, choices=("keep", "names"))
    >>> python_text("if ids are names, add `--ids names`, or choose with --ids", {"ids": ids})
    'if ids are names, add `ids="names"`, or choose with ids'
    >>> python_text("as in `--relation user,rates,item=r.mtx`", {})
    'as in `relations={("user", "rates", "item"): "r.mtx"}`'

    Args:
        options: the known options by keyword.
    """
    by_flag = {option.flag or name: (name, option) for name, option in options.items()}

    def keyword(flag: str, value: str | None) -> str:
        name = flag.replace("-", "_")
        denied = name.removeprefix("no_")
        if denied != name and name not in by_flag and denied in by_flag:
            return f"{denied}=False"
        name, option = by_flag.get(name, (name, None))
        if option is not None and option.kind is bool:
            return f"{name}={option.flag == name or not option.flag_name}"
        if value is None:
            return name
        # Commands are quoted for a shell.
        value = value[1:-1] if re.fullmatch(r"'[^']*'", value) else value
        if flag in _TABLES and "=" in value:
            names, table = value.split("=", 1)
            ends = ", ".join(f'"{each}"' for each in names.split(","))
            return f'{_TABLES[flag]}={{{ends if flag == "vertices" else f"({ends})"}: "{table}"}}'
        is_plain = re.fullmatch(r"-?\d+(\.\d+)?|[A-Z][A-Z_]+", value)
        return f"{name}={value}" if is_plain else f'{name}="{value}"'

    def python_of(found: re.Match[str]) -> str:
        quoted, flag, space, word = found.groups()
        if quoted is not None:
            flags = [each.split(" ", 1) for each in re.split(r"(?:^| )--", quoted)[1:]]
            return f"`{', '.join(keyword(each[0], each[1] if len(each) > 1 else None) for each in flags)}`"
        if flag is None:
            call = features_call(found.group()[1:-1])
            return f"`{call}`" if call else found.group()
        option = by_flag.get(flag.replace("-", "_"), ("", None))[1]
        is_bool = option is not None and option.kind is bool
        is_value = (
            word is not None
            and not is_bool
            and (space == "=" or _VALUE.fullmatch(word) or (option is not None and word in option.choices))
        )
        return keyword(flag, word) if is_value else f"{keyword(flag, None)}{space or ''}{word or ''}"

    return _PLACES.sub(python_of, text)
