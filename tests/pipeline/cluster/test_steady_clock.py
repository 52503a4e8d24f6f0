"""Workers work on while the clock of the day jumps."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from distributed import batched, scheduler
from tornado.ioloop import IOLoop

from gnnloom.pipeline.cluster.steady_clock import steady_clock, steady_time

SHIM = Path(__file__).parent / "programs" / "jumping_clock.c"
_TASKS = """
import time
from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
if __name__ == "__main__":
    with open_cluster(ClusterOptions(workers=2)) as cluster:
        for _ in range(12):
            list(cluster.map(time.sleep, [0.2] * 4))
    print("done")
"""


def test_dask_does_not_see_that_the_clock_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    modules: list[Any] = [batched, scheduler]
    before = [IOLoop.time, *(module.time for module in modules)]
    with steady_clock():
        clocks: list[Callable[[], float]] = [steady_time, *(module.time for module in modules)]
        clocks.append(lambda: IOLoop.time(Mock()))
        began = [clock() for clock in clocks]
        monkeypatch.setattr(time, "time", lambda: 0.0)
        assert all(0 <= clock() - then < 60 for clock, then in zip(clocks, began, strict=True))
    assert [IOLoop.time, *(module.time for module in modules)] == before


@pytest.mark.long
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_tasks_end_while_the_clock_jumps(tmp_path: Path) -> None:
    shim, program = tmp_path / "jump.so", tmp_path / "tasks.py"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(shim), str(SHIM)], check=True)
    program.write_text(_TASKS)
    environment = {**os.environ, "LD_PRELOAD": str(shim), "JUMP_SECONDS": "3600"}
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.stdout == "done\n", done.stderr
