"""Shows how files and edges in memory would be read, without storing anything."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.sources.format import guess_format, open_edges
from gnnloom.pipeline.sources.understood import Understood, understood_of
from gnnloom.storage.option import options_of
from gnnloom.storage.wording import shell_command
from gnnloom.workflows.api.arrays import as_texts, is_location, stored_edges
from gnnloom.workflows.api.options.keywords import plain_values
from gnnloom.workflows.api.options.python_messages import named_as, speaking_python


@dataclass(frozen=True)
class Look:
    """How a source would be read.

    Attributes:
        files: how each file is read, with its first rows.
        command: the command that stores the source; empty for edges in memory.
    """

    files: tuple[Understood, ...]
    command: str

    def __str__(self) -> str:
        """Lines for people."""
        return "\n".join([*(line for each in self.files for line in each.lines()), self.command]).rstrip()

    __repr__ = __str__

    def to_json(self) -> dict[str, Any]:
        """What ``gnnloom look --json`` prints."""
        return {"files": [each.to_json() for each in self.files], "command": self.command}


def look(
    source: str | Path | Sequence[str | Path] | Any,
    *,
    format: str | None = None,  # noqa: A002 - the name of the option of the command
    **options: Any,
) -> Look:
    """Find out how a source would be read, without storing anything.

    >>> print(gnnloom.look("calls.csv"))  # doctest: +SKIP
    calls.csv: text, fields between commas; the first line names the columns
      edges from caller to callee
      ids are names: 'ann' in line 2 is not a number
    gnnloom ingest NAME calls.csv --ids compact

    Args:
        source: as for :func:`gnnloom.ingest`.
        format: format of the files; by default guessed.
        options: options of the format, as in ``gnnloom ingest --help-all``.

    Raises:
        InputError: the source cannot be read, or an option is unknown.
        NotFoundError: a file does not exist.
    """
    return speaking_python(find_reading, options_of(IngestOptions))(source, format, options)


def find_reading(source: Any, format: str | None, options: dict[str, Any]) -> Look:  # noqa: A002
    """Find out how a source would be read; arguments and errors as for :func:`look`."""
    with ExitStack() as stack:
        in_memory = not is_location(source)
        locations = [stack.enter_context(stored_edges(source)).location] if in_memory else as_texts(source)
        if in_memory:
            stack.enter_context(named_as({locations[0]: "source"}))
        edges = open_edges(format, locations, plain_values(options))
        found = understood_of(edges, locations, format or guess_format(locations))
        return Look(tuple(found), "" if in_memory else _command(locations, format, options, found))


def _command(
    locations: Sequence[str], format_name: str | None, options: dict[str, Any], found: Sequence[Understood]
) -> str:
    """The command that stores the edges of files with these options."""
    words = ["gnnloom", "ingest", "NAME", *locations]
    words += ["--format", format_name] if format_name else []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is None or value == "":
            continue
        words += [flag] if value is True else [f"--no-{flag[2:]}"] if value is False else [flag, str(value)]
    words += [
        word for flag in dict.fromkeys(flag for each in found for flag in each.flags) for word in flag.split(" ", 1)
    ]
    words += ["--ids", "compact"] if any(each.are_names for each in found) else []
    return shell_command(*words)
