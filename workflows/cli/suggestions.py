"""Adds "did you mean" to errors about commands and values of options; click itself does so for options only."""

from __future__ import annotations

import re
from difflib import get_close_matches

import click

#: How click words a wrong value of a choice, and a command that does not exist.
_QUOTED = re.compile(r"^(?:No such command )?(['\"])(?P<given>.*?)\1(?: is not one of |\.)")


def add_suggestion(error: click.UsageError) -> None:
    """Add the names that are nearest to a mistyped one to the error's message."""
    found = _QUOTED.match(error.message)
    if found is None or "Did you mean" in error.format_message():
        return
    near = get_close_matches(found["given"], _choices(error), n=2)
    if near:
        error.message = f"{error.message.rstrip('.')}. Did you mean {' or '.join(map(repr, near))}?"


def _choices(error: click.UsageError) -> list[str]:
    """Everything that the user may have meant."""
    if isinstance(error, click.BadParameter):
        kind = error.param.type if error.param is not None else None
        return [str(choice) for choice in kind.choices] if isinstance(kind, click.Choice) else []
    command = error.ctx.command if error.ctx is not None else None
    return command.list_commands(error.ctx) if isinstance(command, click.Group) and error.ctx is not None else []
