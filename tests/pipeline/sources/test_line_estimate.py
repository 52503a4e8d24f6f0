"""The number of edges of text is estimated from samples, and lies in the range that is stated with it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gnnloom.pipeline.sources.reading import line_estimate
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.workflows.formatting import readable_range


def write_growing(path: Path, edges: int, *, parts: int = 1) -> Path:
    """Edges in the order of their ids, so that lines grow longer along the file."""
    text = "# comment\n" + "".join(f"{v}\t{v * 7919 % (v + 1)}\n" for v in range(edges))
    cut = -(-len(text) // parts)
    pieces = [text[start : start + cut].encode() for start in range(0, len(text), cut)]
    path.write_bytes(b"".join(map(gzip.compress, pieces)) if path.suffix == ".gz" else b"".join(pieces))
    return path


@pytest.mark.parametrize("name", ["edges.txt", "edges.txt.gz"])
def test_small_files_are_counted(tmp_path: Path, name: str) -> None:
    found = TextEdges.open([str(write_growing(tmp_path / name, 5000))]).estimate_edges()
    assert found == line_estimate.Estimate(5000, 5000, 5000)


@pytest.mark.parametrize(("name", "parts"), [("edges.txt", 1), ("edges.txt.gz", 1), ("edges.txt.gz", 3)])
def test_the_range_contains_the_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, parts: int) -> None:
    monkeypatch.setattr(line_estimate, "SAMPLE_BYTES", 1 << 11)
    monkeypatch.setattr(line_estimate, "_STEP", 1 << 16)
    # The clock stands still until the first steps were read.
    ticks = iter([0.0] * 12)
    monkeypatch.setattr("gnnloom.pipeline.sources.reading.line_estimate.time.process_time", lambda: next(ticks, 100.0))
    path = write_growing(tmp_path / name, 200_000, parts=parts)
    found = TextEdges.open([str(path)]).estimate_edges()
    assert found is not None
    assert found.low < found.likely < found.high < 1.4 * found.low
    assert found.low <= 200_000 <= found.high
    assert found.likely == pytest.approx(200_000, rel=0.1)


def test_estimates_are_shown_with_two_digits() -> None:
    assert readable_range(1_403_211, 1_712_345) == "about 1.4 to 1.7 M"
    assert readable_range(616_000, 616_900) == "about 620 k"
    assert readable_range(948_464, 948_464) == "948,464"
    assert readable_range(960_000, 1_040_000) == "about 0.96 to 1 M"
