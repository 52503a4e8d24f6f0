"""Text on a terminal: names of vertices, paths and errors are shown as they are, and never obeyed.

What rich takes for markup, links or emoji codes in data is text here, and control characters are shown escaped.
"""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console
from rich.text import Text

from gnnloom.storage.wording import visible


class PlainConsole(Console):
    """A console on which a text is a text, in tables, titles, trees and lines alike."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Everything that is printed as a text, rather than as rich's ``Text``, passes here."""
        return super().render_str(visible(text), **{**options, "markup": False, "emoji": False, "highlight": False})


def styled(*parts: str | tuple[str, str]) -> Text:
    """A line of parts, each a text or a text with its style.

    >>> styled("graph/", ("[/n1]", "bold")).plain
    'graph/[/n1]'
    """
    return Text.assemble(*(visible(part) if isinstance(part, str) else (visible(part[0]), part[1]) for part in parts))


def say(text: str, *, err: bool = False) -> None:
    """Print a line in which data may occur."""
    click.echo(visible(text), err=err)
