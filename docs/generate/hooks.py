"""Hooks of the manual's build: they fill in what is generated from the source.

A page says ``<!-- generated: NAME ARGUMENT -->`` where generated text belongs.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# MkDocs loads this file by its path, so the files next to it would not be found.
sys.path.insert(0, str(Path(__file__).parent))

import cli_reference  # noqa: E402
import combinations  # noqa: E402
import figures  # noqa: E402
import python_reference  # noqa: E402
import recipe_reference  # noqa: E402
import schema_tables  # noqa: E402

_DIRECTIVE = re.compile(r"<!-- generated: ([\w-]+)(?: ([\w-]+))? -->")
_GENERATORS: dict[str, Callable[[str], str]] = {
    "combinations": combinations.table,
    "commands": lambda _: cli_reference.commands(),
    "recipe": lambda _: recipe_reference.sections(),
    "python": lambda _: python_reference.names(),
    "schema": schema_tables.arrays,
    "figure": figures.figure,
}


def on_startup(**_: Any) -> None:
    """Arrange the source as it is installed, so that docstrings are found under ``gnnloom``."""
    folder = ROOT / "build" / "docs-source"
    shutil.rmtree(folder, ignore_errors=True)
    python_reference.arrange(ROOT, folder / "gnnloom")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the directives of a page."""
    return _DIRECTIVE.sub(lambda found: _GENERATORS[found[1]](found[2] or ""), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Remove the roles of Sphinx, which docstrings use for their references, and keep short code on one line."""
    html = re.sub(r":(?:\w+:)?(?:attr|class|data|func|meth|mod):(?=<code>)(<code>)~?", r"\1", html)
    return re.sub(r"<code>(?=[^<]{1,30}</code>)", '<code class="short">', html)
