"""Installs another package that extends gnnloom: one module, announced by an entry point."""

from __future__ import annotations

import os
from pathlib import Path


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
