"""Runs recipes by the command, as a user does, on this machine or inside an MPI job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from gnnloom.trainer.comm.transports.mpi import find_mpiexec
from gnnloom.trainer.job.launch import rank_environment
from support.in_process import run_command
from support.mpi import rank_command

#: Settings for a few seconds of work, with a partitioner that does not start a process.
TINY = (
    "source.vertices=400",
    "source.edges=4000",
    "source.dim=8",
    "partition.method=random",
    "train.hidden=8",
    "train.epochs=4",
)
#: A recipe whose stages take no time worth mentioning.
RECIPE = """\
[dataset]
name = "tiny"
undirected = true

[source]
format = "sbm"
vertices = 120
edges = 900
classes = 4
dim = 8

[partition]
method = "random"

[train]
ranks = 3
hidden = [8]
epochs = 4
"""
#: Environment variable that marks every process of a job.
_MARK = "GNNLOOM_TEST_JOB"
GNNLOOM = str(Path(sys.executable).parent / "gnnloom")


def forked_program() -> list[str]:
    """The command, run by Python processes that this process's server of ranks forks."""
    return [*rank_command(), "-m", "gnnloom.workflows.cli.main"]


def run_arguments(recipe: str, catalog: Path, *settings: str, more: tuple[str, ...] = ()) -> list[str]:
    """Return the arguments ``--catalog DIR run RECIPE --set ...``."""
    given = [word for setting in settings for word in ("--set", setting)]
    return ["--catalog", str(catalog), "run", recipe, *given, *more]


def run_here(arguments: list[str]) -> dict[str, Any]:
    """Run the command on this machine, in this process, with ``--json``; returns the object that it prints."""
    done = run_command(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert isinstance(content, dict)
    return content


class Job:
    """A running command, in a session of its own, as a terminal would start it."""

    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self._name = uuid.uuid4().hex
        self.process = subprocess.Popen(
            command,
            env={**(environment or os.environ), _MARK: self._name},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.log = ""

    def wait_until_logged(self, text: str) -> None:
        """Read the job's log up to a line that contains ``text``."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log += line
            if text in line:
                return
        raise AssertionError(self.log)

    def finish(self, timeout: float = 300) -> tuple[int, str, str]:
        """Wait for the end; returns the exit code, standard output, and the whole log."""
        out, rest = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, self.log + rest

    def workers(self) -> list[psutil.Process]:
        """Return the processes of Dask's workers, which are children of ranks; waits until there is one."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            found = [child for child in self.family() if "spawn_main" in " ".join(child.cmdline())]
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(self.log)

    def family(self) -> list[psutil.Process]:
        """Return all living processes of the job."""
        return [child for child in psutil.Process(self.process.pid).children(recursive=True) if child.is_running()]

    def kill(self) -> None:
        """Kill all processes at once, like a node that loses power; waits until they are gone."""
        family = self.family()
        self.process.kill()
        for process in family:
            process.kill()
        self.process.communicate()
        _, alive = psutil.wait_procs(family, 60)
        assert not alive

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to the whole process group, as a terminal does for Ctrl-C."""
        os.killpg(self.process.pid, number)

    def wait_until_gone(self, timeout: float = 60) -> None:
        """Wait until no process of the job is left."""
        deadline = time.monotonic() + timeout
        while left := self._left():
            if time.monotonic() > deadline:
                raise AssertionError(left)
            time.sleep(0.1)

    def _left(self) -> list[str]:
        """Return all processes that the job or its children started, whatever their group or session."""
        return [str(process) for process in psutil.process_iter() if _mark_of(process) == self._name]


def _mark_of(process: psutil.Process) -> str | None:
    try:
        environment: dict[str, str] = process.environ()
        return environment.get(_MARK)
    except (psutil.Error, OSError):
        return None


class LocalJob(Job):
    """``gnnloom ...`` on this machine."""

    def __init__(self, arguments: list[str]) -> None:
        super().__init__([GNNLOOM, *arguments, "--json"])


class MpiJob(Job):
    """``mpirun -n RANKS gnnloom ... --cluster mpi``."""

    def __init__(self, ranks: int, arguments: list[str], program: Sequence[str] = (GNNLOOM,)) -> None:
        command = [find_mpiexec(), "-n", str(ranks), *program, *arguments, "--cluster", "mpi", "--json"]
        super().__init__(command, rank_environment(ranks))
