"""What goes wrong on a worker of a busy machine is one line of the command, without Dask's log."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.recipes import GNNLOOM

pytestmark = pytest.mark.long

#: Processes that keep the cores busy, so that heartbeats between Dask's processes are late.
BUSY = 6


@pytest.fixture
def busy_machine() -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    yield
    for process in others:
        process.kill()
        process.wait()


def command(catalog: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = [GNNLOOM, "--catalog", str(catalog), *arguments]
    return subprocess.run(program, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.usefixtures("busy_machine")
def test_shard_reports_a_damaged_graph_by_one_line(tmp_path: Path) -> None:
    for stage in (
        "generate web rmat --scale 12 --edge-factor 8",
        "features web random --dim 4",
        "partition web --parts 4 --method random",
    ):
        done = command(tmp_path, *stage.split(), "--workers", "0")
        assert done.returncode == 0, done.stderr
    chunk = next(tmp_path.glob("web/graph/*/block/00000/indices/c/0"))
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    done = command(tmp_path, "shard", "web", "--parts", "4", "--workers", "2")
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {chunk}: damaged chunk")
