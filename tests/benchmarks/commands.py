"""Commands of gnnloom that a benchmark runs in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any


def gnnloom(folder: str, *arguments: str, limit: Callable[[], None] | None = None) -> dict[str, Any]:
    """Run a command on the catalog in a folder; returns what it prints as JSON, and ends the benchmark if it fails.

    Args:
        limit: what the process calls before its program, to limit itself.
    """
    command = [sys.executable, "-m", "gnnloom.workflows.cli.main", "--catalog", folder, *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limit)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
