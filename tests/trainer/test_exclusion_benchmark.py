"""The benchmark of excluded edges works: it prints a ratio of epochs for each number of ranks, in the given order."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "bench_exclusion.py"


@pytest.mark.long
@pytest.mark.parametrize("ranks", [(2, 1)])
def test_every_number_of_ranks_gets_a_ratio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ranks: tuple[int, ...]
) -> None:
    given = ("--scale", "tiny", "--models", "gcn", "--rounds", "1", "--catalog", str(tmp_path))
    # As a program, it would import torch in a process of its own, and in each of its ranks.
    monkeypatch.syspath_prepend(str(BENCHMARK.parent))
    monkeypatch.setattr(sys, "argv", [str(BENCHMARK), *given, "--ranks", ",".join(map(str, ranks))])
    runpy.run_path(str(BENCHMARK), run_name="__main__")
    results = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("RESULT ")]
    cases = [f"exclusion-rmat-8-gcn-{number}{what}" for number in ranks for what in ("", "-processor")]
    assert [(name, unit) for _, name, _, unit in results] == [(case, "x") for case in cases]
    assert all(float(value) > 0 for *_, value, _ in results)
