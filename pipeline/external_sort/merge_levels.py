"""Levels of merges between files that each cover all positions and tasks that each read a few positions of them.

A task that reads one range of positions should open few files. If there are more, levels of merges come first: a task
merges several files for one *span* of positions, so that the next level has fewer files for each span and more spans.
Every level reads and writes everything once, and their number is the logarithm of the number of files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Level:
    """Files of one level: ``sources`` files for each of ``spans`` equal ranges of positions."""

    number: int
    sources: int
    spans: int


def merge_levels(num_files: int, fan_in: int) -> tuple[Level, ...]:
    """All levels; the first has ``num_files`` files of all positions, the last at most ``fan_in`` files per span."""
    levels = [Level(0, num_files, 1)]
    merges = 0
    while fan_in ** (merges + 1) < num_files:
        merges += 1
    # The same number of files in every merge: as few as that number of levels allows.
    merged = math.ceil(num_files ** (1 / (merges + 1)) - 1e-9)
    for number in range(1, merges + 1):
        before = levels[-1]
        levels.append(Level(number, -(-before.sources // merged), before.spans * merged))
    return tuple(levels)


def merged_sources(levels: Sequence[Level], level: Level, source: int) -> range:
    """Sources of the level before ``level`` that are merged into ``source``."""
    before = levels[level.number - 1]
    size = -(-before.sources // level.sources)
    return range(source * size, min((source + 1) * size, before.sources))


def span_of(level: Level, num_positions: int, position: int) -> int:
    """Number of a level's span that holds a position."""
    # Position x lies in the last span i that begins at or before it: i * n < (x + 1) * spans.
    return ((position + 1) * level.spans - 1) // num_positions
