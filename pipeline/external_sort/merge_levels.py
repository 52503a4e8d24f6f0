"""Levels of merges between sources that each cover all positions and tasks that each need a few positions of all.

A source is a spill file, usually a lane of a file that many tasks write (:mod:`gnnloom.pipeline.external_sort.lanes`).
A task that reads one range of positions should not read a few bytes here and there. If there are too many sources,
levels of merges come first: a task merges several sources for one *span* of positions, so that the next level has fewer
sources for each span and more spans. Every level reads and writes everything once, and their number is the logarithm of
the number of sources.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.matrix.ranges import Span, range_of, split_range


@dataclass(frozen=True)
class Level:
    """One level: ``sources`` for each of ``spans`` equal ranges of positions."""

    number: int
    sources: int
    spans: int


def merge_levels(num_files: int, fan_in: int) -> tuple[Level, ...]:
    """All levels; the first has ``num_files`` sources of all positions, the last at most ``fan_in`` per span."""
    levels = [Level(0, num_files, 1)]
    num_merges = 0
    while fan_in ** (num_merges + 1) < num_files:
        num_merges += 1
    # Every merge takes the same number of sources: as few as that number of levels allows.
    merged = math.ceil(num_files ** (1 / (num_merges + 1)) - 1e-9)
    for number in range(1, num_merges + 1):
        before = levels[-1]
        levels.append(Level(number, -(-before.sources // merged), before.spans * merged))
    return tuple(levels)


def most_sources(num_bytes: int, num_positions: int, scratch: Scratch = BESIDE) -> int:
    """Most sources that a task reads for each position, if the sources have ``num_bytes`` bytes together.

    The rule is 16 sources, or more if a task reads at least 64 KiB from each. The rule limits short reads, not opens:
    lanes share few files, so many lanes need few opens. A level of merges copies all bytes once more, which costs more
    than reads of 64 KiB (tests/benchmarks/RESULTS.md, "Files that a task opens"), so there is none unless a task would
    otherwise read less than that from each.
    """
    return max(scratch.sources, num_bytes // num_positions // scratch.source_bytes)


@dataclass(frozen=True)
class Merge:
    """Sources of one level that become one of the next.

    Attributes:
        span: number of the span of the new source.
        source: number of the new source, among the sources of its span.
        positions: first and last (exclusive) position of the span.
        span_before: number of the span in the level before that holds these positions.
        group: numbers of the merged sources, among the sources of that span.
    """

    span: int
    source: int
    positions: Span
    span_before: int
    group: range


def merges(levels: Sequence[Level], level: Level, num_positions: int) -> Iterator[Merge]:
    """The merges that make the sources of a level, by span and source; spans without positions have none."""
    before = levels[level.number - 1]
    merged = -(-before.sources // level.sources)
    for span in range(level.spans):
        positions = split_range(num_positions, level.spans, span)
        if positions[0] == positions[1]:
            continue
        # Spans of a level lie within the spans of the level before.
        wide = range_of(num_positions, before.spans, positions[0])
        for source in range(level.sources):
            group = range(source * merged, min((source + 1) * merged, before.sources))
            yield Merge(span, source, positions, wide, group)
