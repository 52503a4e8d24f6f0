"""Runs commands of documents in the process of the tests, which saves the seconds that a program takes to start."""

from __future__ import annotations

import re
import shlex
import subprocess

from click.testing import CliRunner

from gnnloom.workflows.cli.main import cli

#: Commands that start workers.
_ON_CLUSTER = re.compile(r"gnnloom (ingest|generate|features|partition|shard|sample) .*(?<!--help)$")


def run_here(command: str) -> None:
    """Run a command in this folder; stages start no workers, as the graphs are tiny. Other programs are started."""
    words = shlex.split(command)
    if words[0] != "gnnloom":
        subprocess.run(words, check=True, capture_output=True)
        return
    workers = ["--workers", "0"] if _ON_CLUSTER.match(command) else []
    done = CliRunner().invoke(cli, [*words[1:], *workers])
    assert done.exit_code == 0, f"{command}\n{done.output}{done.exception!r}"
