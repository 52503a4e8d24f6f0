"""The text format that hypergraphs are handed over in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.partition.native.problem_files import write_hmetis
from support.hypergraphs import hypergraph_of


def test_the_hmetis_file_holds_the_hypergraph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnloom.pipeline.partition.native.problem_files._CHUNK_PINS", 4)
    nets = [[0, 1], [4, 2, 0, 3, 1], [3, 0], [99, 9, 10]]
    weight = [1, 12, 123, (1 << 31) - 1, *[7] * 96]
    write_hmetis(tmp_path / "file", hypergraph_of(nets, weight), np.array(weight))
    lines = (tmp_path / "file").read_text().splitlines()
    assert lines[0] == "4 100 10"
    assert [[int(pin) - 1 for pin in line.split(" ")] for line in lines[1:5]] == nets
    assert [int(line) for line in lines[5:]] == weight
