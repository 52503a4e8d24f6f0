"""When a task fails, no other one is still writing once the caller hears of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.storage.errors import CorruptError


def _work(item: tuple[Path, bool]) -> int:
    folder, fails = item
    if fails:
        # After the other one has begun.
        while not (folder / "begun").exists():
            time.sleep(0.02)
        raise CorruptError("damaged")
    (folder / "begun").touch()
    time.sleep(1.5)
    (folder / "written").touch()
    return 0


def test_a_failure_is_raised_after_running_tasks_have_ended(tmp_path: Path) -> None:
    with open_cluster(ClusterOptions(workers=2)) as cluster:
        with pytest.raises(CorruptError, match="damaged"):
            list(cluster.map(_work, [(tmp_path, False), (tmp_path, True)]))
        assert (tmp_path / "written").exists()
