"""The benchmark of both exchanges works: it counts minimum covers, and compares epochs in every setting."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "bench_exchange.py"


@pytest.mark.long
def test_it_prints_counts_and_ratios(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # As a program, it would import torch in a process of its own, and in each of its ranks.
    monkeypatch.syspath_prepend(str(BENCHMARK.parent))
    monkeypatch.setattr(sys, "argv", [str(BENCHMARK), "--scale", "tiny", "--rounds", "1", "--folder", str(tmp_path)])
    runpy.run_path(str(BENCHMARK), run_name="__main__")
    results = [line.split()[1:] for line in capsys.readouterr().out.splitlines() if line.startswith("RESULT ")]
    value = {name.removeprefix("exchange_rmat-8_"): float(number) for name, number, _ in results}
    partitions = [f"{parts}_{method}" for parts in (4, 64) for method in ("metis", "multilevel", "random")]
    for name in partitions:
        assert value[f"{name}_sent"] == value[f"{name}_minimum"] <= value[f"{name}_km1"], name
    for name in ("64_float32", "16_float32", "64_bf16"):
        # Both products of an epoch send what the partition counts.
        assert value[f"gcn_{name}_bytes"] == value["4_metis_sent_over_km1"] < 1, name
        assert value[f"gcn_{name}_processor"] > 0, name
