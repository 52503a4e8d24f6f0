"""Packages that add an algorithm, a partitioner or a format to gnnloom, installed in a temporary folder."""

from __future__ import annotations

import os
from pathlib import Path


def install_plugin(folder: Path, name: str, source: str, group: str, constant: str) -> dict[str, str]:
    """Write a distribution of one module, and the entry point that announces its descriptor.

    Args:
        folder: gets ``{name}.py`` and ``{name}-1.0.dist-info``.
        source: code of the module.
        group: group of the entry point, such as ``gnnloom.partitioners``.
        constant: name of the descriptor in the module.

    Returns:
        The environment in which subprocesses find the package.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}:{constant}\n", encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path}
