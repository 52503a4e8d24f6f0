"""A preset: one named setting of a partitioner, with its cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """A named setting of a partitioner.

    Attributes:
        name: value of ``--preset``; empty if the partitioner has a single setting.
        help: line for the table of presets in ``gnnloom partition --help``.
        seconds: processor seconds for a million pins and 8 parts, measured on power-law graphs, which are the
            hardest (lattices take a tenth).
        parts_power: power of the number of parts that the seconds grow with.
        improves: whether the preset can also improve parts that it is given.
        bytes_per_gain: bytes that a native program caches for each vertex and part; 0 without such a cache.
    """

    name: str = ""
    help: str = ""
    seconds: float = 0.01
    parts_power: float = 0.0
    improves: bool = False
    bytes_per_gain: int = 0

    def cpu_seconds(self, num_pins: int, parts: int) -> float:
        """Processor seconds to partition ``num_pins`` pins into ``parts`` parts."""
        return float(self.seconds * num_pins / 1e6 * (parts / 8) ** self.parts_power)
