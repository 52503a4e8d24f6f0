"""What decides which method suits a graph: its size, its skew, and how many pins clusters of vertices absorb."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Structure:
    """The measures of a graph that a choice of method depends on; the same on every machine.

    Attributes:
        num_pins: of the hypergraph of one direction; an upper bound, as rows may already hold their own vertex.
        pins_left: share of the pins that remain if every small cluster of vertices becomes one vertex: about 0.55 for
            meshes, 0.75 for web graphs and collaborations, and 0.9 for graphs without clusters.
        skew: nonzeros of the longest row over the average.
    """

    num_pins: int
    pins_left: float
    skew: float
