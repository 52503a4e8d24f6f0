"""Writes text on the terminal. Commands import this module instead of rich or `click.echo`.

Rich reads strings as markup (``[bold]``, ``[link=...]``), and terminals obey control characters; names, paths and
messages may contain both. Here all strings are text. A style is an argument, never part of a string.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import click

from gnnloom.storage.wording import printable

if TYPE_CHECKING:
    from rich.console import Console  # noqa: TID251
    from rich.text import Text  # noqa: TID251

#: Text of one style: rich's name of the style, such as ``bold cyan``, then the text.
Styled = tuple[str, str]

#: Characters of messages that are shown unchanged.
_LINES: Final = "\n"


def console(*, on_stderr: bool = False) -> Console:
    """A console that prints strings unchanged, for objects of :func:`text`."""
    # Imported here because help and errors need no console.
    from rich.console import Console  # noqa: TID251 - the only console

    return Console(stderr=on_stderr, markup=False, emoji=False, highlight=False)


def text(*parts: str | Styled) -> Text:
    """A line, title or cell of a table, with control characters shown as escapes."""
    from rich.text import Text  # noqa: TID251 - the only text

    shown = Text()
    for part in parts:
        style, content = ("", part) if isinstance(part, str) else part
        shown.append(printable(content), style or None)
    return shown


def say(message: str = "", *, on_stderr: bool = False) -> None:
    """Print a message of one line or several, with other control characters shown as escapes."""
    click.echo(printable(message, keep=_LINES), err=on_stderr)  # noqa: TID251 - the one place


class PlainFormatter(logging.Formatter):
    """Formats log records, with control characters shown as escapes."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep=_LINES)
