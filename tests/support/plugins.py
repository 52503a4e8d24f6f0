"""Installs another package that extends gnnloom: one module, announced by an entry point."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from support.mpi import TESTS, rank_command

_PROGRAM = Path(__file__).with_name("in_process.py")


def install_plugin(folder: Path, name: str, source: str, group: str, constant: str) -> dict[str, str]:
    """Write a package of one module into a folder, as an installer would.

    Args:
        folder: created if missing; it serves as a small site-packages.
        name: name of the module, of the distribution and of its entry point.
        source: code of the module, which holds one descriptor.
        group: group of the entry point, such as ``gnnloom.formats``.
        constant: name of the descriptor in the module.

    Returns:
        The environment in which subprocesses, and the processes that they start, find the package.
    """
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / f"{name}.py").write_text(source)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}:{constant}\n")
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *([inherited] if inherited else [])])}


class InstalledProgram:
    """Runs `gnnloom` for a user who installed other packages: all commands in one new process, which finds them.

    The process and its ranks are forked from one that finds the packages, rather than that each imports torch.

    Args:
        alone: whether it trains on one rank in its own process, without MPI.
    """

    def __init__(self, environment: Mapping[str, str], *, alone: bool = False) -> None:
        path, python = os.pathsep.join([environment["PYTHONPATH"], str(TESTS)]), rank_command(environment["PYTHONPATH"])
        self._process = subprocess.Popen(
            [*python, str(_PROGRAM), "alone" if alone else "launching", *python],
            env={**environment, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command; returns its exit code and what it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        code, output, errors = json.loads(self._process.stdout.readline())
        return subprocess.CompletedProcess(["gnnloom", *arguments], code, output, errors)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
        assert self._process.returncode == 0
