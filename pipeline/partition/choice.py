"""Which method partitions a graph at each level of ``--quality``: decided by the graph alone, the same everywhere.

Measured on graphs of nine kinds (tests/benchmarks/RESULTS.md).  Three things matter.  Graphs without clusters, such as
R-MAT, leave a multilevel method nothing to coarsen, and cheap passes of refinement from random parts do as well.
Elsewhere Mt-KaHyPar's fastest preset, followed by such passes, comes near its slow presets.  And where the slow preset
takes only seconds, there is nothing to save.
"""

from __future__ import annotations

from dataclasses import dataclass

from gnnloom.pipeline.partition.native.mt_kahypar import MT_KAHYPAR
from gnnloom.pipeline.partition.structure import Structure

#: Levels of ``--quality``, the default first.
LEVELS = ("balanced", "fast", "best")
#: Largest hypergraph that is partitioned in memory: Mt-KaHyPar needs 2.2 GiB for it.
MOST_PINS = 1 << 24
#: More of the pins than this remain in graphs without clusters.
_NO_CLUSTERS = 0.9
#: Fewer remain in meshes, on which the deterministic preset takes a fifth of its usual time.
_MESH, _MESH_SHARE = 0.65, 0.2
#: Rows that are this much longer than the average keep a coarsening from merging what they touch.
_SKEWED = 10.0
#: Processor seconds up to which the slow preset is worth its time; see :func:`_slow_seconds`.
_WORTH_SECONDS = 45.0
#: Processor seconds of a pass of refinement for a million pins and up to 64 parts.
_PASS_SECONDS = 0.09


@dataclass(frozen=True)
class Way:
    """One way to make a partition.

    Attributes:
        start: a preset of Mt-KaHyPar on one thread, ``heavy-first`` for balanced random parts, or ``multilevel`` for
            that method.
        passes: passes of streaming refinement after the start.
        heat: loss that the first of them accepts with a chance of about 1/e.
    """

    start: str
    passes: int = 0
    heat: float = 0.0

    def __str__(self) -> str:
        start = f"mtkahypar {self.start}" if self.is_native else self.start
        return f"{start}, {self.passes} passes of refinement" if self.passes else start

    @property
    def is_native(self) -> bool:
        """Whether Mt-KaHyPar makes the first parts."""
        return self.start not in {"heavy-first", "multilevel"}

    def cpu_seconds(self, num_pins: int, parts: int) -> float:
        """Processor seconds for a graph without meshes' short boundaries; not for ``multilevel``."""
        start = MT_KAHYPAR.preset(self.start).cpu_seconds(num_pins, parts) if self.is_native else 0.0
        return start + self.passes * _PASS_SECONDS * -(-parts // 64) * num_pins / 1e6


@dataclass(frozen=True)
class Choice:
    """How to partition a graph.

    Attributes:
        ways: tried in this order; the partition that sends the fewest rows is kept.
        reason: what about the graph decided, as one line.
    """

    ways: tuple[Way, ...]
    reason: str


_MULTILEVEL = Way("multilevel")


def choose(level: str, num_pins: int, parts: int, structure: Structure | None) -> Choice:
    """Choose how to partition a graph.

    Args:
        level: one of ``LEVELS``.
        num_pins: of the hypergraph that is partitioned.
        structure: needed up to ``MOST_PINS`` pins.
    """
    if structure is None or num_pins > MOST_PINS:
        return Choice((_MULTILEVEL,), f"more than {MOST_PINS:,} pins, so nets stay on disk")
    left = f"small clusters absorb {1 - structure.pins_left:.0%} of the pins"
    if structure.pins_left >= _NO_CLUSTERS:
        shape = "no clusters, but long rows" if structure.skew >= _SKEWED else "no clusters, rows of similar length"
    else:
        shape = "a mesh" if structure.pins_left < _MESH else "clusters"
    return Choice(
        _ways(level, num_pins, parts, structure), f"{shape}: {left}, longest row {structure.skew:.0f} x average"
    )


def _ways(level: str, num_pins: int, parts: int, structure: Structure) -> tuple[Way, ...]:
    has_clusters = structure.pins_left < _NO_CLUSTERS
    if level == "fast":
        return (Way("large-k", 16, 0.5),) if has_clusters else (Way("heavy-first", 16, 1.5),)
    slow, quick = Way("deterministic"), Way("large-k", 64, 1.0)
    if level == "best":
        return slow, Way("deterministic-quality"), Way("large-k", 200, 1.0), Way("heavy-first", 200, 2.0)
    if not has_clusters and structure.skew >= _SKEWED:
        return (Way("heavy-first", 64, 1.5),)
    if structure.pins_left < _MESH:
        return (slow,)
    # Each of the two fails on some graphs with clusters, so both run where both are quick.
    return (slow, quick) if _slow_seconds(num_pins, parts, structure) <= _WORTH_SECONDS else (quick,)


def _slow_seconds(num_pins: int, parts: int, structure: Structure) -> float:
    """Estimate the processor seconds of the deterministic preset."""
    share = _MESH_SHARE if structure.pins_left < _MESH else 1.0
    return share * MT_KAHYPAR.preset("deterministic").cpu_seconds(num_pins, parts)
