"""Draws the README's figure, time and memory of gnnloom and other tools, from the table of RESULTS.md.

python tests/benchmarks/draw_peers.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests" / "benchmarks" / "RESULTS.md"
FIGURE = ROOT / "docs" / "images" / "peers.svg"
#: The measurement that the figure shows, as in the first column of the table.
SHOWN = "100 M, binary"
TITLE = "From a file of 100 million edges to an adjacency in CSR form, on two cores"

#: Sizes in pixels.
_WIDTH, _NAMES, _PANEL, _GAP, _TOP, _ROW, _BAR = 820, 118, 210, 136, 72, 32, 18
_STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif }
  text { fill: #1c2430 }
  .muted { fill: #5a6575 } .title { font-size: 15px; font-weight: 600 } .ours { fill: #0072b2 } .peer { fill: #9aa3ae }
  .end { text-anchor: end } .strong { font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e8ebf0 } .muted { fill: #9ba6b5 } .ours { fill: #4aa8e0 } .peer { fill: #6b7583 }
  }
"""


@dataclass(frozen=True)
class Measurement:
    """One tool's figures: wall-clock seconds, and peak memory in MB."""

    tool: str
    seconds: float
    megabytes: float


def read_measurements(text: str, shown: str = SHOWN) -> list[Measurement]:
    """The rows of a measurement in a table whose columns include tool, wall s and memory MB."""
    found: list[Measurement] = []
    columns: list[str] = []
    current = ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if {"tool", "wall s", "memory MB"} <= set(cells):
            columns = cells
        elif columns and line.startswith("|") and len(cells) == len(columns):
            row = dict(zip(columns, cells, strict=True))
            current = cells[0] or current
            # Rows that compare two figures in one cell belong to another measurement.
            if current == shown and row["tool"] and " and " not in row["wall s"]:
                found.append(Measurement(row["tool"], _number(row["wall s"]), _number(row["memory MB"])))
        elif not line.startswith("|"):
            columns, current = [], ""
    return found


def _number(cell: str) -> float:
    return float(cell.replace(",", ""))


def draw(measurements: Sequence[Measurement]) -> str:
    """The figure as SVG, for light and dark pages."""
    height = _TOP + _ROW * len(measurements) + 8
    panels = [
        _panel("time", _NAMES, [each.seconds for each in measurements], lambda value: f"{value:.1f} s"),
        _panel(
            "peak memory",
            _NAMES + _PANEL + _GAP,
            [each.megabytes for each in measurements],
            lambda value: f"{value / 1000:.1f} GB",
        ),
    ]
    names = [
        _text(_NAMES - 12, _line(number), each.tool, "end strong" if number == 0 else "end")
        for number, each in enumerate(measurements)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
        f' role="img" aria-label="{escape(TITLE)}">\n<style>{_STYLE}</style>\n'
        + "\n".join([_text(0, 20, TITLE, "title"), *names, *panels])
        + "\n</svg>\n"
    )


def _panel(title: str, left: int, values: Sequence[float], write: Callable[[float], str]) -> str:
    elements = [_text(left, _TOP - 18, title, "muted")]
    for number, value in enumerate(values):
        width, kind = _PANEL * value / max(values), "peer" if number else "ours"
        ratio = f"  ({value / values[0]:.1f} x)" if number else ""
        elements += [
            f'<rect class="{kind}" x="{left}" y="{_line(number) - 14}" width="{width:.1f}" height="{_BAR}" rx="2"/>',
            _text(left + width + 8, _line(number), write(value) + ratio, "strong" if number == 0 else ""),
        ]
    return "\n".join(elements)


def _line(number: int) -> int:
    return _TOP + _ROW * number + 14


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    marked = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y}"{marked}>{escape(text)}</text>'


def main() -> None:
    """Write the figure."""
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    FIGURE.write_text(draw(read_measurements(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
