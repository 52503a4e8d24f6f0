"""Runs commands in the process of the tests, which saves the seconds that a program takes to start.

As a program, it runs the commands that it reads, one per line (:class:`support.plugins.InstalledProgram`).
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner

from gnnloom.workflows.cli.main import cli, main

#: Commands that start workers.
_ON_CLUSTER = re.compile(r"gnnloom (ingest|generate|features|partition|shard|sample) .*(?<!--help)$")


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `gnnloom` here, through the entry point of the installed program.

    What processes that it starts write to their standard error is not part of the result.
    """
    output, errors, code = io.StringIO(), io.StringIO(), 0
    with (
        patch.object(sys, "argv", ["gnnloom", *arguments]),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        try:
            main()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
    return subprocess.CompletedProcess(["gnnloom", *arguments], code, output.getvalue(), errors.getvalue())


def answer(catalog: Path, *words: str) -> dict[str, Any]:
    """Run a command on a catalog with `--json`, and return the object that it prints; its error is raised."""
    done = CliRunner().invoke(cli, ["--catalog", str(catalog), *words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def run_here(command: str) -> None:
    """Run a command in this folder; stages start no workers, as the graphs are tiny. Other programs are started."""
    words = shlex.split(command)
    if words[0] != "gnnloom":
        subprocess.run(words, check=True, capture_output=True)
        return
    workers = ["--workers", "0"] if _ON_CLUSTER.match(command) else []
    done = run_command(*words[1:], *workers)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def serve(*, alone: bool, ranks: list[str]) -> None:
    """Run every command that standard input holds as a line of JSON, and answer it with a line.

    Args:
        alone: train on one rank here, without MPI.
        ranks: what stands for ``python -m mpi4py`` in the command of ranks.
    """
    launcher: Any = importlib.import_module("gnnloom.trainer.job.launch")
    launcher.rank_python = lambda: ranks
    if alone:
        from support.lone_training import LoneLauncher

        launcher._launch = LoneLauncher()
    answers = sys.stdout
    for line in sys.stdin:
        done = run_command(*json.loads(line))
        answers.write(json.dumps([done.returncode, done.stdout, done.stderr]) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(alone=sys.argv[1] == "alone", ranks=sys.argv[2:])
