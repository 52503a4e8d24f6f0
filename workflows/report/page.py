"""The HTML of a report: one page without references to other files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from gnnloom.workflows.report.pictures.style import COLORS, Picture

#: Identifies a page as a report, which a newer one may replace.
MARK = "<meta name='generator' content='gnnloom report'>"
_STYLE = Path(__file__).with_name("page.css")


def page(title: str, subtitle: str, *sections: str) -> str:
    """Build a page from its sections; the subtitle may have several lines."""
    lines = "".join(f"<p class='muted'>{escape(line)}</p>" for line in subtitle.splitlines())
    head = f"<h1>{escape(title)}</h1>{lines}"
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<meta name='color-scheme' content='light dark'>{MARK}"
        f"<title>{escape(title)}</title>\n<style>\n{_colors()}\n{_STYLE.read_text(encoding='utf-8')}</style></head>\n"
        f"<body><main><header>{head}</header>\n{''.join(sections)}</main></body></html>\n"
    )


def _colors() -> str:
    light, dark = (";".join(f"--{name}:{pair[which]}" for name, pair in COLORS.items()) for which in (0, 1))
    return f":root{{color-scheme:light dark;{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def code(text: str) -> str:
    """Build a block with a command to copy."""
    return f"<pre>{escape(text)}</pre>"


def section(title: str, *cards: str | None) -> str:
    """Build a heading with cards, two in a row; empty if there are no cards."""
    there = [card for card in cards if card]
    if not there:
        return ""
    return f"<h2>{escape(title)}</h2>\n<div class='grid'>\n{''.join(there)}</div>\n"


def card(title: str, content: str, *, note: str = "", kind: str = "") -> str:
    """Build a box with a title.

    Args:
        content: HTML.
        kind: ``wide`` for the full width, ``table`` for content of any width, ``tall`` to scroll long content.
    """
    below = f"<p class='note'>{escape(note)}</p>" if note else ""
    heading = f"<h3>{escape(title)}</h3>" if title else ""
    return f"<div class='card {kind}'>{heading}{content}{below}</div>\n"


def picture_card(picture: Picture | None, title: str | None = None) -> str | None:
    """Put a picture into a box; None stays None."""
    if picture is None:
        return None
    return card(title or picture.title, picture.svg(), note=picture.note, kind="wide" if picture.is_wide else "")


def message_card(title: str, text: str, kind: str = "table") -> str:
    """Build a box that says what is missing and how to get it."""
    return card(title, f"<p class='muted'>{escape(text)}</p>", kind=kind)


def remark(text: str) -> str:
    """Build a line over the full width."""
    return f"<p class='note wide'>{escape(text)}</p>\n"


def warning(text: str) -> str:
    """Build a conspicuous box over the full width."""
    return f"<div class='card warning'><p>{escape(text)}</p></div>\n"


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """Build small boxes from pairs of a name and a figure."""
    boxes = "".join(
        f"<div class='tile'><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in pairs
    )
    return f"<div class='tiles'>{boxes}</div>\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Build a table; its first column is aligned to the left, all others to the right."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def folded(title: str, content: str) -> str:
    """Build a wide box that shows its content when it is opened."""
    return f"<details class='card wide'><summary>{escape(title)}</summary>{content}</details>\n"
