"""Invariants of propagated values: every block of columns of every step is there, and all values are finite."""

from __future__ import annotations

import numpy as np

from gnnloom.storage.artifacts.propagated import Propagated
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.wording import counted


def check_propagated(artifact: Artifact) -> None:
    """Check all blocks; one chunk is in memory at a time.

    Raises:
        CorruptError: an invariant is broken.
    """
    found = Propagated(artifact)
    last_only, expected = found.ppr is not None, range(1, found.num_steps + 1)
    if found.steps != (tuple(expected[-1:]) if last_only else tuple(expected)):
        raise CorruptError(f"{artifact.path}: steps {found.steps} of {found.num_steps}")
    if len(artifact.records) != len(found.steps) * found.num_blocks:
        raise CorruptError(
            f"{artifact.path}: {counted(len(artifact.records), 'array')}, expected {found.num_blocks} for each of"
            f" {counted(len(found.steps), 'step')}"
        )
    for step in found.steps:
        for block in range(found.num_blocks):
            reader = found.array(step, block)
            for start, stop in reader.ranges(1):
                if not np.isfinite(reader.read(start, stop)).all():
                    raise CorruptError(f"{reader.where}: a value of rows {start}:{stop} is not a finite number")
