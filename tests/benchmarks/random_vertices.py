"""Random features, 16 random classes and a split, stored for the vertices of a benchmark's graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def random_vertices(folder: Path, num_vertices: int, dim: int, share: float) -> list[str]:
    """Write files, and return the options of `gnnloom features` that read them.

    Args:
        folder: a new folder; remove it once the files are read.
        share: fraction of the vertices that are for training; the others are for testing.
    """
    rng = np.random.default_rng(0)
    folder.mkdir()
    split = np.full(num_vertices, 3, np.uint8)
    split[rng.random(num_vertices) < share] = 1
    np.save(folder / "split.npy", split)
    np.save(folder / "label.npy", rng.integers(0, 16, num_vertices))
    feature = np.lib.format.open_memmap(folder / "feature.npy", "w+", np.float32, (num_vertices, dim))
    for start in range(0, num_vertices, 1 << 16):
        feature[start : start + (1 << 16)] = rng.random((min(1 << 16, num_vertices - start), dim), np.float32)
    del feature
    return [option for name in ("feature", "label", "split") for option in (f"--{name}", str(folder / f"{name}.npy"))]
