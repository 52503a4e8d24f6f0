"""Chooses the method for each level of ``--quality``: the graph alone decides, so the choice is the same everywhere.

Measured on graphs of nine kinds (tests/benchmarks/RESULTS.md). For an exchange of rows, passes over clusters and then
vertices refine the parts of a fast partitioner, and come near Mt-KaHyPar's slow presets in a tenth of their time. They
start from Mt-KaHyPar's fastest preset where clusters absorb most pins: it is quick there. For other graphs, they start
from KaMinPar, which takes at most half of the time for equally good parts. On meshes, one V-cycle of the deterministic
preset closes the rest of the gap. Graphs without clusters, such as R-MAT, leave a multilevel method nothing to coarsen,
and the passes do as well from random parts. For an exchange that covers blocks, the edge cut is nearer to what is sent
than the rows are, so KaMinPar's parts get passes that lower the cover itself; on meshes these find nothing. Above
``MOST_PINS``, two passes over random parts make most of the gain of the multilevel method, in an eighth of its time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from gnnloom.pipeline.partition.cover_cost import cover_seconds
from gnnloom.pipeline.partition.native.ka_min_par import KAMINPAR
from gnnloom.pipeline.partition.native.mt_kahypar import MT_KAHYPAR
from gnnloom.pipeline.partition.native.program import NativeProgram
from gnnloom.pipeline.partition.partitioner import PartitionWorkload, Preset, Structure
from gnnloom.pipeline.partition.settings import EXCHANGES
from gnnloom.storage.wording import counted

#: Levels of ``--quality``, the default first.
LEVELS = ("balanced", "fast", "best")
#: Largest hypergraph that is partitioned in memory: Mt-KaHyPar needs 2.2 GiB for it.
MOST_PINS = 1 << 24
#: More of the pins than this remain in graphs without clusters.
_NO_CLUSTERS = 0.9
#: Fewer remain in meshes, and in graphs that Mt-KaHyPar coarsens quickly, such as pages of the web.
_MESH, _STRONG_CLUSTERS = 0.65, 0.72
#: Rows that are this much longer than the average keep a coarsening from merging their vertices.
_SKEWED = 10.0
#: Processor seconds of a pass of refinement for a million pins and up to 64 parts.
_PASS_SECONDS = 0.09
#: Share of this time for a level of clusters, on average.
_LEVEL_SHARE = 0.4
#: Passes of refinement of random parts where nets stay on disk and a partition has to be there soon.
_FEW_PASSES = 2
#: Preset whose V-cycles improve parts, and the share of its time that one takes.
CYCLE_PRESET, _CYCLE_SHARE = "deterministic", 0.4
#: Native programs by the first word of a start; its second word is the preset.
_PROGRAMS: Final[Mapping[str, NativeProgram]] = {program.name: program for program in (KAMINPAR, MT_KAHYPAR)}


@dataclass(frozen=True)
class Way:
    """One way to make a partition.

    Attributes:
        start: a native program and its preset, ``heavy-first`` for balanced random parts, or ``multilevel`` for that
            method.
        passes: passes of streaming refinement after the start.
        heat: loss that the first pass accepts with a probability of about 1/e.
        levels: maximum number of levels of clusters that move before the vertices, each with the same number of passes.
        cycle: whether one V-cycle of Mt-KaHyPar's preset ``CYCLE_PRESET`` follows.
        cover_passes: the most passes of cover refinement at the end.
    """

    start: str
    passes: int = 0
    heat: float = 0.0
    levels: int = 0
    cycle: bool = False
    cover_passes: int = 0

    def __str__(self) -> str:
        steps = [self.start]
        if self.passes:
            levels = f" on up to {self.levels + 1} levels" if self.levels else ""
            steps.append(f"{counted(self.passes, 'pass')} of refinement{levels}")
        if self.cycle:
            steps.append("a V-cycle")
        if self.cover_passes:
            steps.append(f"{counted(self.cover_passes, 'pass')} of cover refinement")
        return ", ".join(steps)

    @property
    def native(self) -> tuple[NativeProgram, Preset] | None:
        """The native program and its preset that make the first parts; None if another start does."""
        name, _, preset = self.start.partition(" ")
        program = _PROGRAMS.get(name)
        return None if program is None else (program, program.preset(preset))

    def cpu_seconds(self, workload: PartitionWorkload) -> float:
        """Processor seconds for a graph without meshes' short boundaries; not for ``multilevel``."""
        num_pins, parts = workload.num_pins, workload.parts
        seconds = self.passes * _PASS_SECONDS * -(-parts // 64) * num_pins / 1e6 * (1 + _LEVEL_SHARE * self.levels)
        seconds += sum(preset.cpu_seconds(num_pins, parts) for _, preset in filter(None, [self.native]))
        if self.cycle:
            seconds += _CYCLE_SHARE * MT_KAHYPAR.preset(CYCLE_PRESET).cpu_seconds(num_pins, parts)
        return seconds + cover_seconds(replace(workload, cover_passes=self.cover_passes))

    @property
    def programs(self) -> list[tuple[NativeProgram, Preset]]:
        """The native programs that run, one after the other, with their presets."""
        cycle = [(MT_KAHYPAR, MT_KAHYPAR.preset(CYCLE_PRESET))] * self.cycle
        return [*filter(None, [self.native]), *cycle]


@dataclass(frozen=True)
class Choice:
    """Choice of a method and its options for a graph.

    Attributes:
        ways: tried in this order; the partition that sends the least is kept.
        reason: the property of the graph that decided, as one line.
    """

    ways: tuple[Way, ...]
    reason: str


def choose(level: str, num_pins: int, structure: Structure | None, exchange: str = EXCHANGES[0]) -> Choice:
    """Choose how to partition a graph.

    Args:
        level: one of ``LEVELS``.
        num_pins: of the hypergraph that is partitioned.
        structure: needed up to ``MOST_PINS`` pins.
        exchange: the exchange to minimize, one of ``EXCHANGES``.
    """
    if structure is None or num_pins > MOST_PINS:
        way = Way("heavy-first", _FEW_PASSES) if level == "fast" else Way("multilevel")
        return Choice((way,), f"more than {MOST_PINS:,} pins, so nets stay on disk")
    left = f"small clusters absorb {1 - structure.pins_left:.0%} of the pins"
    if structure.pins_left >= _NO_CLUSTERS:
        shape = "no clusters, but long rows" if structure.skew >= _SKEWED else "no clusters, rows of similar length"
    else:
        shape = "a mesh" if structure.pins_left < _MESH else "clusters"
    covers = exchange != EXCHANGES[0] and structure.pins_left >= _MESH
    ways = _COVERED[level] if covers else _ways(level, structure)
    return Choice(ways, f"{shape}: {left}, longest row {structure.skew:.0f} x average")


def _ways(level: str, structure: Structure) -> tuple[Way, ...]:
    is_mesh = structure.pins_left < _MESH
    is_random = structure.pins_left >= _NO_CLUSTERS and structure.skew >= _SKEWED
    start = "mtkahypar large-k" if structure.pins_left < _STRONG_CLUSTERS else "kaminpar default"
    if level == "fast":
        return (Way("heavy-first", 16, 1.5) if is_random else Way(start, 16, 0.5),)
    if level == "balanced":
        if is_random:
            return (Way("heavy-first", 64, 1.5),)
        return (Way(start, 16, 0.5, cycle=True) if is_mesh else Way(start, 40, 0.5, levels=5),)
    # Of another kind than the slow presets, so it wins on some graphs where they do not.
    other = Way("heavy-first", 200, 2.0) if is_random else Way(start, 64, 0.5, levels=5, cycle=True)
    ways = (Way("mtkahypar deterministic-quality"), other)
    # On meshes one more way costs little.
    return (Way("mtkahypar deterministic"), *ways) if is_mesh else ways


#: Ways for graphs that are no meshes, where ranks send covers.
_COVERED: Final[Mapping[str, tuple[Way, ...]]] = {
    "fast": (Way("kaminpar default", cover_passes=4),),
    "balanced": (Way("kaminpar default", cover_passes=16),),
    "best": (Way("kaminpar strong", cover_passes=32), Way("kaminpar default", cover_passes=32)),
}
