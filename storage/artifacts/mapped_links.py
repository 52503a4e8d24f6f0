"""The pairs of links for random access, mapped from files that all processes share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
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
        value: (num_pairs,) classes or numbers of the pairs; None if they have no values.
        negative: (num_pairs, num_negatives) int64 targets that are negatives of each pair; None if there are none.
        negative_source: (num_pairs, num_replaced) int64 sources that are negatives of each pair; None if there are
            none.
        pool: (num_pooled, 2) int64 sources and targets of the negatives that all pairs share; None if there are none.
        key: (num_pairs,) int64 ascending :func:`pair_keys` of training pairs; None for other splits, and if all
            training pairs are edges of the message graph.
    """

    pair: NDArray[np.int64]
    value: NDArray[Any] | None
    negative: NDArray[np.int64] | None
    negative_source: NDArray[np.int64] | None
    pool: NDArray[np.int64] | None
    key: NDArray[np.int64] | None


def map_links(links: Links) -> dict[str, MappedPairs]:
    """Map the pairs of every split; see :mod:`gnnloom.storage.format.mapped_copy`."""
    arrays = open_copy(links.artifact, links_contents(links))
    others = [field.name for field in fields(MappedPairs)][1:]
    return {
        split: MappedPairs(arrays[f"{split}-pair"], *(arrays.get(f"{split}-{name}") for name in others))
        for split in LINK_SPLITS
    }


def links_contents(links: Links) -> dict[str, ArrayContent]:
    """The arrays of :class:`MappedPairs` of every split."""
    vertices, found = links.vertex_bounds, dict[str, ArrayContent]()
    for split in LINK_SPLITS:
        bounds: dict[str, tuple[int, int] | None] = {"pair": vertices}
        if links.kind != PAIR:
            bounds["value"] = links.value_bounds
        numbers = {
            "negative": links.num_negatives(split),
            "negative_source": links.num_replaced(split),
            "pool": links.num_pooled(split),
        }
        bounds |= {name: vertices for name, number in numbers.items() if number}
        for name, each in bounds.items():
            found[f"{split}-{name}"] = ArrayContent.of(links.artifact.array(f"{split}/{name}", bounds=each))
    if not links.trains_on_edges:
        num_keys, keys = links.num_pairs["train"], lambda: _train_keys(links)
        found["train-key"] = ArrayContent((num_keys,), np.dtype(np.int64), None, keys)
    return found


def pair_keys(source: NDArray[Any], target: NDArray[Any], num_vertices: int, *, symmetric: bool) -> NDArray[np.int64]:
    """(num_pairs,) int64 numbers of pairs, the same for both directions of a pair of a symmetric graph.

    Args:
        source, target: (num_pairs,) integers.
    """
    if symmetric:
        source, target = np.minimum(source, target), np.maximum(source, target)
    keys: NDArray[np.int64] = target * np.int64(num_vertices) + source
    return keys


def _train_keys(links: Links) -> Iterator[NDArray[np.int64]]:
    """The ascending keys of the training pairs, which takes 8 bytes of memory for each pair."""
    keys, start = np.empty(links.num_pairs["train"], np.int64), 0
    for pairs in links.artifact.array("train/pair", bounds=links.vertex_bounds).chunks():
        keys[start : start + len(pairs)] = pair_keys(
            pairs[:, 0], pairs[:, 1], links.num_vertices, symmetric=links.symmetric
        )
        start += len(pairs)
    keys.sort()
    yield keys
