"""Checks the contracts of imports in pyproject.toml, and builds the graph of imports.

python tests/support/import_contracts.py

Both tools accept `gnnloom.storage` and its siblings as roots only if `gnnloom` is a namespace, a package without a file
of its own. They therefore run with a folder first on their path that makes it one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOP_LEVEL = ("storage", "pipeline", "trainer", "workflows")

_LIST_IMPORTS = """
import sys, grimp
graph = grimp.build_graph(*sys.argv[1:], cache_dir=None)
for module in sorted(graph.modules):
    print(module, *sorted(graph.find_modules_directly_imported_by(module)))
"""


@contextmanager
def _namespace() -> Iterator[dict[str, str]]:
    """Yield an environment in which gnnloom is a namespace of the four folders."""
    with tempfile.TemporaryDirectory() as folder:
        namespace = Path(folder, "gnnloom")
        namespace.mkdir()
        for top in TOP_LEVEL:
            (namespace / top).symlink_to(ROOT / top)
        yield {**os.environ, "PYTHONPATH": folder}


def direct_imports() -> dict[str, list[str]]:
    """The modules that each module imports, also inside functions and for type checkers."""
    packages = [f"gnnloom.{top}" for top in TOP_LEVEL]
    with _namespace() as environment:
        command = [sys.executable, "-c", _LIST_IMPORTS, *packages]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    lines = [line.split() for line in done.stdout.splitlines()]
    return {module: imported for module, *imported in lines}


def check_contracts() -> int:
    """Run import-linter; returns its exit code."""
    program = str(Path(sys.executable).with_name("lint-imports"))
    with _namespace() as environment:
        return subprocess.run([program, "--no-cache"], cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(check_contracts())
