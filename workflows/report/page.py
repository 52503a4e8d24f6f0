"""The HTML of a report: one page without references to other files, and the terms that it uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gnnloom.workflows.formatting import in_html
from gnnloom.workflows.report.pictures.style import COLORS, Picture

#: Identifies a page as a report, which a newer report may replace.
MARK = "<meta name='generator' content='gnnloom report'>"
_STYLE = Path(__file__).with_name("page.css")


def page(title: str, subtitle: str, *sections: str) -> str:
    """Build a page from its sections; the subtitle may have several lines."""
    lines = "".join(f"<p class='muted'>{in_html(line)}</p>" for line in subtitle.splitlines())
    head = f"<h1>{in_html(title)}</h1>{lines}"
    light, dark = (";".join(f"--{name}:{pair[which]}" for name, pair in COLORS.items()) for which in (0, 1))
    colors = f":root{{color-scheme:light dark;{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<meta name='color-scheme' content='light dark'>{MARK}"
        f"<title>{in_html(title)}</title>\n<style>\n{colors}\n{_STYLE.read_text(encoding='utf-8')}</style></head>\n"
        f"<body><main><header>{head}</header>\n{''.join(sections)}</main></body></html>\n"
    )


def code(text: str) -> str:
    """Build a block with a command to copy."""
    return f"<pre>{in_html(text)}</pre>"


def section(title: str, *cards: str | None) -> str:
    """Build a heading with cards, two in a row; empty if there are no cards."""
    there = [card for card in cards if card]
    if not there:
        return ""
    return f"<h2>{in_html(title)}</h2>\n<div class='grid'>\n{''.join(there)}</div>\n"


def card(title: str, content: str, *, note: str = "", kind: str = "") -> str:
    """Build a box with a title.

    Args:
        content: HTML.
        kind: ``wide`` for the full width, ``table`` for content of any width, ``tall`` to scroll long content.
    """
    below = f"<p class='note'>{in_html(note)}</p>" if note else ""
    heading = f"<h3>{in_html(title)}</h3>" if title else ""
    return f"<div class='card {kind}'>{heading}{content}{below}</div>\n"


def picture_card(picture: Picture | None, title: str | None = None) -> str | None:
    """Put a picture into a box; None stays None."""
    if picture is None:
        return None
    drawn = f"<div class='scroll' tabindex='0'>{picture.svg()}</div>"
    below = f"<p class='note'>{in_html(picture.note)}</p>" if picture.note else ""
    kind = "wide" if picture.is_wide else ""
    return card(title or picture.title, drawn + below + _values(picture), kind=kind)


def _values(picture: Picture) -> str:
    """Build the table behind a picture, which the keyboard opens; empty if the picture has no values."""
    rows = [(name, dict(_named(value) for value in values)) for name, *values in picture.values]
    columns = dict.fromkeys(column for _, row in rows for column in row)
    cells = [(name, *(row.get(column, "") for column in columns)) for name, row in rows]
    if not cells:
        return ""
    return f"<details class='values'><summary>Values</summary>{table(('', *columns), cells)}</details>"


def _named(value: str) -> tuple[str, str]:
    """A value and its name, which are separated by two spaces."""
    name, _, text = value.rpartition("  ")
    return name or "value", text


def message_card(title: str, text: str, kind: str = "table") -> str:
    """Build a box that explains how to get a missing part."""
    return card(title, f"<p class='muted'>{in_html(text)}</p>", kind=kind)


def remark(text: str) -> str:
    """Build a line over the full width."""
    return f"<p class='note wide'>{in_html(text)}</p>\n"


def warning(text: str) -> str:
    """Build a conspicuous box over the full width."""
    return f"<div class='card warning'><p>{in_html(text)}</p></div>\n"


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """Build small boxes from pairs of a name and a figure."""
    boxes = "".join(
        f"<div class='tile'><b>{in_html(value)}</b><span>{in_html(name)}</span></div>" for name, value in pairs
    )
    return f"<div class='tiles'>{boxes}</div>\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Build a table; its first column is aligned to the left, all others to the right."""
    head = "".join(f"<th>{in_html(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{in_html(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class='scroll' tabindex='0'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def folded(title: str, content: str) -> str:
    """Build a wide box that shows its content when it is opened."""
    return f"<details class='card wide'><summary>{in_html(title)}</summary>{content}</details>\n"


_TERMS: Mapping[str, str] = {
    "adjacency product": "The sparse product A H: every vertex sums the rows of its in-neighbors.",
    "best validation epoch": (
        "The first epoch with the highest validation score. Its test score is the one to report if the model is"
        " selected by validation."
    ),
    "bytes sent": "Bytes that all ranks together send in one epoch, without evaluation.",
    "collective": (
        "An operation of a whole group of ranks, such as a broadcast or an all-reduce. It is counted as a ring."
    ),
    "confusion matrix": "The share of the labels of each true class (row) that were predicted as each class (column).",
    "epoch": "One forward pass, one backward pass and one update of the parameters.",
    "F1": (
        "The harmonic mean of precision (how many predictions of a class are right) and recall (how many labels of the"
        " class are found). Micro F1 counts all labels together, macro F1 is the mean over classes."
    ),
    "halo": "The vertices of other ranks whose rows a rank needs for its own.",
    "imbalance": "Nonzeros of the largest part over the mean, minus one.",
    "km1": "The connectivity cut of the hypergraph: exactly the rows sent per layer and direction.",
    "maximum over mean": "The figure of the largest rank over the mean of all ranks; 1.00 is a perfect balance.",
    "nonzero": "A stored entry of the adjacency: a directed edge, or a self loop.",
    "own columns": "Columns of a shard that belong to the vertices of its rank; the others are halo columns.",
    "part": "The vertices of one rank, as the partitioner chose them.",
    "peak memory": "The most physical memory that a process used, including Python and its libraries.",
    "random partition": "Vertices assigned to parts at random; the mean number of rows sent has a closed form.",
    "rank": "One training process. Each rank reads only its own shard.",
    "sampling": "Time that a rank waits for its next batch.",
    "shard": "The rows, features and communication partners of one rank, or a block of the adjacency.",
    "task time": "The sum of the times of all tasks; tasks run at the same time, so a stage takes less.",
    "waiting": "Time that a rank waits for slower ranks.",
}


def glossary() -> str:
    """Return the terms as an HTML list."""
    items = "".join(f"<dt>{in_html(term)}</dt><dd>{in_html(meaning)}</dd>" for term, meaning in _TERMS.items())
    return f"<dl>{items}</dl>"
