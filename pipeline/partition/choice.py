"""Chooses the method for each level of ``--quality``: the graph alone decides, so the choice is the same everywhere.

Measured on graphs of nine kinds (tests/benchmarks/RESULTS.md).  Graphs without clusters, such as R-MAT, leave a
multilevel method nothing to coarsen, and cheap passes of refinement from random parts do as well.  Elsewhere
Mt-KaHyPar's fastest preset, followed by such passes over clusters and then vertices, comes near its slow presets.  On
meshes, one V-cycle of the deterministic preset closes the rest of the gap; there it is quick.  Above ``MOST_PINS``, two
passes over random parts make most of the gain of the multilevel method, in an eighth of its time.
"""

from __future__ import annotations

from dataclasses import dataclass

from gnnloom.pipeline.partition.native.mt_kahypar import MT_KAHYPAR
from gnnloom.pipeline.partition.partitioner import Structure
from gnnloom.storage.wording import counted

#: Levels of ``--quality``, the default first.
LEVELS = ("balanced", "fast", "best")
#: Largest hypergraph that is partitioned in memory: Mt-KaHyPar needs 2.2 GiB for it.
MOST_PINS = 1 << 24
#: More of the pins than this remain in graphs without clusters.
_NO_CLUSTERS = 0.9
#: Fewer remain in meshes.
_MESH = 0.65
#: Rows that are this much longer than the average keep a coarsening from merging what they touch.
_SKEWED = 10.0
#: Processor seconds of a pass of refinement for a million pins and up to 64 parts.
_PASS_SECONDS = 0.09
#: Share of that which a level of clusters takes, on average.
_LEVEL_SHARE = 0.4
#: Passes of refinement of random parts where nets stay on disk and a partition has to be there soon.
_FEW_PASSES = 2
#: Preset whose V-cycles improve parts, and the share of its time that one takes.
CYCLE_PRESET, _CYCLE_SHARE = "deterministic", 0.4


@dataclass(frozen=True)
class Way:
    """One way to make a partition.

    Attributes:
        start: a preset of Mt-KaHyPar on one thread, ``heavy-first`` for balanced random parts, or ``multilevel`` for
            that method.
        passes: passes of streaming refinement after the start.
        heat: loss that the first pass accepts with a probability of about 1/e.
        levels: maximum number of levels of clusters that move before the vertices, each with the same number of passes.
        cycle: whether one V-cycle of Mt-KaHyPar's preset ``CYCLE_PRESET`` follows.
    """

    start: str
    passes: int = 0
    heat: float = 0.0
    levels: int = 0
    cycle: bool = False

    def __str__(self) -> str:
        steps = [f"mtkahypar {self.start}" if self.is_native else self.start]
        if self.passes:
            levels = f" on up to {self.levels + 1} levels" if self.levels else ""
            steps.append(f"{counted(self.passes, 'pass')} of refinement{levels}")
        if self.cycle:
            steps.append("a V-cycle")
        return ", ".join(steps)

    @property
    def is_native(self) -> bool:
        """Whether Mt-KaHyPar makes the first parts."""
        return self.start not in {"heavy-first", "multilevel"}

    def cpu_seconds(self, num_pins: int, parts: int) -> float:
        """Processor seconds for a graph without meshes' short boundaries; not for ``multilevel``."""
        seconds = self.passes * _PASS_SECONDS * -(-parts // 64) * num_pins / 1e6 * (1 + _LEVEL_SHARE * self.levels)
        if self.is_native:
            seconds += MT_KAHYPAR.preset(self.start).cpu_seconds(num_pins, parts)
        if self.cycle:
            seconds += _CYCLE_SHARE * MT_KAHYPAR.preset(CYCLE_PRESET).cpu_seconds(num_pins, parts)
        return seconds

    @property
    def presets(self) -> tuple[str, ...]:
        """The presets of Mt-KaHyPar that run, one after the other."""
        return (self.start,) * self.is_native + (CYCLE_PRESET,) * self.cycle


@dataclass(frozen=True)
class Choice:
    """Choice of a method and its options for a graph.

    Attributes:
        ways: tried in this order; the partition that sends the fewest rows is kept.
        reason: what about the graph decided, as one line.
    """

    ways: tuple[Way, ...]
    reason: str


def choose(level: str, num_pins: int, structure: Structure | None) -> Choice:
    """Choose how to partition a graph.

    Args:
        level: one of ``LEVELS``.
        num_pins: of the hypergraph that is partitioned.
        structure: needed up to ``MOST_PINS`` pins.
    """
    if structure is None or num_pins > MOST_PINS:
        way = Way("heavy-first", _FEW_PASSES) if level == "fast" else Way("multilevel")
        return Choice((way,), f"more than {MOST_PINS:,} pins, so nets stay on disk")
    left = f"small clusters absorb {1 - structure.pins_left:.0%} of the pins"
    if structure.pins_left >= _NO_CLUSTERS:
        shape = "no clusters, but long rows" if structure.skew >= _SKEWED else "no clusters, rows of similar length"
    else:
        shape = "a mesh" if structure.pins_left < _MESH else "clusters"
    return Choice(_ways(level, structure), f"{shape}: {left}, longest row {structure.skew:.0f} x average")


def _ways(level: str, structure: Structure) -> tuple[Way, ...]:
    is_flat, is_mesh = structure.pins_left >= _NO_CLUSTERS, structure.pins_left < _MESH
    is_random = is_flat and structure.skew >= _SKEWED
    if level == "fast":
        return (Way("heavy-first", 16, 1.5),) if is_flat else (Way("large-k", 16, 0.5),)
    if level == "balanced":
        if is_random:
            return (Way("heavy-first", 64, 1.5),)
        return (Way("large-k", 16, 0.5, cycle=True) if is_mesh else Way("large-k", 40, 0.5, levels=5),)
    # Of another kind than the slow presets, so it wins on some graphs where they do not.
    other = Way("heavy-first", 200, 2.0) if is_random else Way("large-k", 64, 0.5, levels=5, cycle=True)
    ways = (Way("deterministic-quality"), other)
    # On meshes one more way costs little.
    return (Way("deterministic"), *ways) if is_mesh else ways
