"""The pairs of links for random access, mapped from files that all processes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.links import PAIR, Links
from gnnloom.storage.format.mapped_copy import ArrayContent, open_copy
from gnnloom.storage.format.schema import LINK_SPLITS


@dataclass(frozen=True)
class MappedPairs:
    """The pairs of one split.

    Attributes:
        pair: (num_pairs, 2) int64 sources and targets.
        value: (num_pairs,) their classes or numbers; None without.
        negative: (num_pairs, num_negatives) int64 targets that were given as negatives of each pair; None without.
    """

    pair: NDArray[np.int64]
    value: NDArray[Any] | None
    negative: NDArray[np.int64] | None


def map_links(links: Links) -> dict[str, MappedPairs]:
    """Map the pairs of every split; see :mod:`gnnloom.storage.format.mapped_copy`."""
    arrays = open_copy(links.artifact, links_contents(links))
    return {
        split: MappedPairs(arrays[f"{split}-pair"], arrays.get(f"{split}-value"), arrays.get(f"{split}-negative"))
        for split in LINK_SPLITS
    }


def links_contents(links: Links) -> dict[str, ArrayContent]:
    """The arrays of :class:`MappedPairs` of every split."""
    vertices, found = (0, links.num_vertices), dict[str, ArrayContent]()
    for split in LINK_SPLITS:
        bounds: dict[str, tuple[int, int] | None] = {"pair": vertices}
        if links.kind != PAIR:
            bounds["value"] = links.value_bounds
        if links.num_negatives(split):
            bounds["negative"] = vertices
        for name, each in bounds.items():
            found[f"{split}-{name}"] = ArrayContent.of(links.artifact.array(f"{split}/{name}", bounds=each))
    return found
