"""The stages that train on a billion edges, at smaller scales: memory, disk, one rank and two agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.cli.main import cli
from support.mpi import train_all
from support.tolerance import tolerance


def _run(catalog: Path, command: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["--catalog", str(catalog), *command.split(), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("scale", [10, pytest.param(20, marks=pytest.mark.long)])
def test_memory_disk_and_ranks_agree(tmp_path: Path, scale: int) -> None:
    made = _run(tmp_path, f"generate graph500 rmat --scale {scale} --edge-factor 16 --workers 0")
    assert made["edges_in"] == 16 << scale
    _run(tmp_path, "features graph500 random --dim 16 --classes 2 --workers 0")
    cases = [(ranks, adjacency) for ranks in (1, 2) for adjacency in ("memory", "disk")]
    for ranks in (1, 2):
        _run(tmp_path, f"partition graph500 --parts {ranks} --method block --workers 0")
        shards = _run(tmp_path, f"shard graph500 --parts {ranks} --reorder degree --workers 0")
        assert shards["reorder"] == "degree"
    configs = [
        TrainConfig.of(
            catalog=str(tmp_path), dataset="graph500", ranks=ranks, hidden=(16,), epochs=3, eval_every=0,
            adjacency=adjacency, run=f"{adjacency}-{ranks}", threads=1,
        )
        for ranks, adjacency in cases
    ]  # fmt: skip
    results = train_all(tmp_path, configs, timeout=480)
    losses = {case: result["loss"] for case, result in zip(cases, results, strict=True)}
    # From three ranks on they agree to rounding: in memory, the rows of each neighbor are multiplied as they arrive.
    for ranks in (1, 2):
        assert losses[ranks, "disk"] == losses[ranks, "memory"]
    # A row's sum has other groups on two ranks; the deepest sums are those of the largest degree, up to 2^scale.
    allowed = tolerance(3 * 2, dtype=np.float32)
    assert losses[2, "memory"] == pytest.approx(losses[1, "memory"], rel=allowed)
    assert losses[1, "memory"][-1] < losses[1, "memory"][0]
