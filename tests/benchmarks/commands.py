"""Commands of gnnloom that a benchmark runs in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def gnnloom(folder: str, *arguments: str) -> dict[str, Any]:
    """Run a command on the catalog in a folder; returns what it prints as JSON, and ends the benchmark if it fails."""
    command = [sys.executable, "-m", "gnnloom.workflows.cli.main", "--catalog", folder, *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
