"""The pictures of the documents are there, small, and show today's figures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from benchmarks.draw_peers import FIGURE, RESULTS, ROOT, draw, read_measurements


def test_the_figure_shows_the_measurements_of_today() -> None:
    measurements = read_measurements(RESULTS.read_text())
    assert [each.tool for each in measurements] == ["gnnloom", "pandas + SciPy", "DuckDB", "polars"]
    assert FIGURE.read_text() == draw(measurements), "repeat: python tests/benchmarks/draw_peers.py"
    ET.fromstring(FIGURE.read_text())


def test_the_pictures_of_the_readme_exist() -> None:
    shown = re.findall(r"!\[[^\]]+\]\((?!http)([^)]+)\)", (ROOT / "README.md").read_text())
    assert shown
    assert all((ROOT / Path(name)).is_file() for name in shown)
