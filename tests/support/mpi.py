"""Runs test programs on real MPI ranks."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from gnnloom.pipeline.partition.native.program import PartitionRequest
from gnnloom.pipeline.partition.native.run import child_command
from gnnloom.storage import Dataset
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.transports.mpi import find_mpiexec
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import rank_environment

TESTS = Path(__file__).resolve().parents[1]
MPI_PYTHON = (sys.executable, "-m", "mpi4py")
_SERVER, _CLIENT = (Path(__file__).with_name(f"rank_{side}.py") for side in ("server", "client"))
#: The command `gnnloom`, with ranks that a server forks: they are quicker to start.
_COMMAND = """
import json, sys
from gnnloom.trainer.job import launch
from gnnloom.workflows.cli.main import main
ranks = json.loads(sys.argv.pop(1))
launch.rank_python = lambda: ranks
main()
"""
#: Looked up here, as a test may set another one, whose content goes with the test.
_TEMPORARY = tempfile.gettempdir()


def run_ranks(ranks: int, *arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """Run ``python -m mpi4py ARGUMENTS`` on new ranks, with the modules of ``tests/`` importable."""
    return _run(ranks, ["-n", str(ranks), *rank_command(), *arguments], timeout)


def predicting(dataset: Dataset, run: str, **options: Any) -> PredictConfig:
    """The configuration of a prediction with a run."""
    return PredictConfig.of_run(dataset, Run.open(dataset, run), **options)


def run_different(*commands: Sequence[str], timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """Run one job in which every rank has other arguments: ``python -m mpi4py COMMAND`` for each."""
    blocks = [[":", "-n", "1", *rank_command(), *command] for command in commands]
    return _run(len(commands), list(itertools.chain.from_iterable(blocks))[1:], timeout)


def _run(ranks: int, arguments: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [find_mpiexec(), *arguments],
        env=_environment(ranks),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def rank_command(python_path: str = "") -> list[str]:
    """What stands for ``python -m mpi4py`` in the command of ranks that this process's server forks.

    Args:
        python_path: of ranks that find other packages, whose server then is one of their own.
    """
    return _client(_server(python_path)[0])


def _client(path: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(_CLIENT), path]


def forked_child(module: str, *arguments: str) -> list[str]:
    """What stands for the command of a process that partitions: it is forked, too.

    A limit of memory is for a process of its own, as a forked one begins with what its server has loaded.
    """
    folder = Path(arguments[-1])
    if module.endswith(".native.child") and PartitionRequest.read(folder).memory_limit is not None:
        return child_command(module, *arguments)
    path, server = _partitioners()
    return [*_client(path), "-m", module, *arguments, str(server.pid)]


def start_command(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start ``gnnloom ARGUMENTS`` in a process of its own, whose ranks this process's server forks.

    Args:
        options: of the process, besides that it reads and writes text.
    """
    command = [sys.executable, "-c", _COMMAND, json.dumps(rank_command()), *arguments]
    return subprocess.Popen(command, text=True, **options)


def running_ranks() -> list[psutil.Process]:
    """The ranks that this process's server has forked and that have not ended."""
    if not _server.cache_info().currsize:
        return []
    ranks: list[psutil.Process] = psutil.Process(_server("")[1].pid).children(recursive=True)
    return ranks


def _environment(ranks: int) -> dict[str, str]:
    found = rank_environment(ranks)
    inherited = [found["PYTHONPATH"]] if found.get("PYTHONPATH") else []
    return {**found, "PYTHONPATH": os.pathsep.join([str(TESTS), *inherited])}


@cache
def _server(python_path: str) -> tuple[str, subprocess.Popen[str]]:
    """This process's server for ranks: where it listens, and its process, which ends when this one does."""
    return _start("ranks", python_path)


@cache
def _partitioners() -> tuple[str, subprocess.Popen[str]]:
    """As :func:`_server`, for partitioners."""
    return _start("partitioners")


def _start(what: str, python_path: str = "") -> tuple[str, subprocess.Popen[str]]:
    path = f"{tempfile.mkdtemp(prefix='ranks-', dir=_TEMPORARY)}/socket"
    # Ranks inherit NumPy's linear algebra from their server, and need no threads of it.
    environment = {**_environment(1), "OPENBLAS_NUM_THREADS": "1"}
    server = subprocess.Popen(
        [sys.executable, str(_SERVER), path, what],
        env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, [python_path, environment["PYTHONPATH"]]))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    atexit.register(_end, server)
    return path, server


def _end(server: subprocess.Popen[str]) -> None:
    with server:
        assert server.stdin is not None
        server.stdin.close()


def run_program(ranks: int, name: str, folder: Path, content: Any, timeout: float = 240) -> Any:
    """Run tests/trainer/programs/NAME.py on ranks with JSON as its input; returns the JSON that rank 0 writes."""
    given, result = folder / f"{name}.given.json", folder / f"{name}.result.json"
    given.write_text(json.dumps(content))
    program = TESTS / "trainer" / "programs" / f"{name}.py"
    done = run_ranks(ranks, str(program), str(given), str(result), timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(result.read_text())


def run_harness(name: str, folder: Path, *options: str, timeout: float) -> str:
    """Run tests/support/NAME.py in a process that is forked from the server of ranks; returns what it prints.

    Harnesses fork every command, which is safe only in a process without other threads.
    """
    with (folder / "output.txt").open("w+") as output:
        done = subprocess.run(
            [*rank_command(), str(TESTS / "support" / f"{name}.py"), *options],
            cwd=TESTS,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
        output.seek(0)
        printed = output.read()
    assert done.returncode == 0, printed[-20_000:]
    return printed


def train_all(folder: Path, configs: list[TrainConfig], timeout: float = 240) -> list[dict[str, Any]]:
    """Train every configuration on its own number of ranks, all in one MPI job."""
    ranks = max(config.algorithm.ranks for config in configs)
    results: list[dict[str, Any]] = run_program(
        ranks, "train_all", folder, [config.to_json() for config in configs], timeout
    )
    for config, result in zip(configs, results, strict=True):
        if "error" in result:
            # Shown if a test fails that expects none.
            print(f"{config.data.dataset}/{config.run.name} on {config.algorithm.ranks} ranks: {result['error']}")
    return results
