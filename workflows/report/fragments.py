"""Small HTML fragments that show objects in notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gnnloom.workflows.formatting import in_html

#: Points of a curve: more would not be visible at its width.
_MOST_POINTS = 300
_WIDTH, _HEIGHT = 300, 60


def fact_table(title: str, facts: Mapping[str, str]) -> str:
    """A title and a table with a row for every fact."""
    rows = "".join(f"<tr><th>{in_html(name)}</th><td>{in_html(value)}</td></tr>" for name, value in facts.items())
    return f"<p><strong>{in_html(title)}</strong></p><table>{rows}</table>"


def row_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a head; empty text without rows."""
    body = "".join(f"<tr>{''.join(f'<td>{in_html(cell)}</td>' for cell in row)}</tr>" for row in rows)
    head = "".join(f"<th>{in_html(column)}</th>" for column in columns)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if body else ""


def curve(label: str, values: Sequence[float]) -> str:
    """A line through values at equal distances, as inline SVG; empty text for fewer than two values.

    Args:
        label: description of the values, for screen readers and as a tooltip.
        values: finite numbers.
    """
    if len(values) < 2:
        return ""
    step = -(-len(values) // _MOST_POINTS)
    shown = [*values[:-1:step], values[-1]]
    low, span = min(shown), (max(shown) - min(shown)) or 1.0
    points = " ".join(
        f"{_WIDTH * number / (len(shown) - 1):.1f},{_HEIGHT - 2 - (_HEIGHT - 4) * (value - low) / span:.1f}"
        for number, value in enumerate(shown)
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
        f"<title>{in_html(label)}</title>"
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
    )
