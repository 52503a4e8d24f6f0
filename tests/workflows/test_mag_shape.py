"""The benchmark of MAG240M's shape works: its folder is MAG240M's, and its commands train on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.ingest.typed.folders.arrays import array_tables

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")
mag_folder = pytest.importorskip("benchmarks.mag_folder")
BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "mag_shape.py"


def test_the_folder_has_the_sizes_the_edges_and_the_labels_of_the_shape(tmp_path: Path) -> None:
    sizes = mag_folder.write_mag(tmp_path, 1 / 100_000)
    assert sizes == {"paper": 1218, "author": 1224, "institution": 2}
    found = array_tables(str(tmp_path))
    assert found is not None
    assert found.sizes == sizes
    assert {ends for ends, _ in found.relations} == set(mag_folder.RELATIONS)
    (data,) = found.data
    source = data.open(None)
    assert source.arrays == ("feature", "label", "split")
    label = np.concatenate(list(source.read_rows("label", 0, 1218))).reshape(-1)
    parts = torch.load(tmp_path / "split_dict.pt", weights_only=False)
    labeled = np.concatenate([parts[name] for name in ("train", "valid", "test-whole")])
    np.testing.assert_array_equal(np.flatnonzero(label >= 0), np.sort(labeled))


@pytest.mark.long
def test_all_commands_work_at_a_tiny_scale(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARK), "--scale", "tiny", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    found = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("RESULT")}
    assert {"epoch", "catalog", *(f"{stage}-time" for stage in ("ingest", "partition", "shard", "train"))} <= found
