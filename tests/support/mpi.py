"""Run test programs on real MPI ranks."""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import find_mpiexec, rank_environment

TESTS = Path(__file__).resolve().parents[1]
MPI_PYTHON = (sys.executable, "-m", "mpi4py")
_SERVER = Path(__file__).with_name("rank_server.py")


def run_ranks(ranks: int, *arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """Run ``python -m mpi4py ARGUMENTS`` on new ranks, with the modules of ``tests/`` importable."""
    return subprocess.run(
        [find_mpiexec(), "-n", str(ranks), sys.executable, "-I", "-S", str(_SERVER), _socket(), *arguments],
        env=_environment(ranks),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def _environment(ranks: int) -> dict[str, str]:
    return {**rank_environment(ranks), "PYTHONPATH": str(TESTS)}


@cache
def _socket() -> str:
    """Where this process's server for ranks listens; it ends along with this process."""
    path = f"{tempfile.mkdtemp(prefix='ranks-')}/socket"
    server = subprocess.Popen(
        [sys.executable, str(_SERVER), path],
        env=_environment(1),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    atexit.register(_end, server, path)
    return path


def _end(server: subprocess.Popen[str], path: str) -> None:
    server.communicate()
    shutil.rmtree(Path(path).parent)


def run_program(ranks: int, name: str, folder: Path, content: Any, timeout: float = 240) -> Any:
    """Run tests/trainer/programs/NAME.py on ranks with JSON as its input; returns the JSON that rank 0 writes."""
    given, result = folder / f"{name}.given.json", folder / f"{name}.result.json"
    given.write_text(json.dumps(content))
    program = TESTS / "trainer" / "programs" / f"{name}.py"
    done = run_ranks(ranks, str(program), str(given), str(result), timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(result.read_text())


def train_all(folder: Path, configs: list[TrainConfig], timeout: float = 240) -> list[dict[str, Any]]:
    """Train every configuration on its own number of ranks, all in one MPI job."""
    ranks = max(config.ranks for config in configs)
    results: list[dict[str, Any]] = run_program(
        ranks, "train_all", folder, [config.to_json() for config in configs], timeout
    )
    return results
