"""Warns of pairs for validation and testing that another relation of the graph has in the other direction."""

from __future__ import annotations

import logging
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.artifacts.typed.typed_graph import Relation, TypedGraph

LOGGER = logging.getLogger("gnnloom.pipeline")

#: Pairs of a split that are looked up.
_SAMPLED: Final = 128
#: Entries of a row that are read together.
_READ: Final = 1 << 14
#: Of a smaller share of the pairs, unrelated relations may have the reverses by chance.
_LEAST_SHARE: Final = 0.05


def warn_of_reverses(relation: Relation, links: Links) -> None:
    """Warn if another relation has pairs for validation and testing in the other direction, judging by a sample.

    Args:
        relation: the relation of the whole graph.
        links: its pairs.
    """
    name, ends = relation.name, (relation.target.name, relation.source.name)
    for other in TypedGraph(relation.artifact).relations:
        if other.name == name or not other.nnz or (other.source.name, other.target.name) != ends:
            continue
        pairs = _sampled(links)
        found = sum(_has_edge(other, target, source) for source, target in pairs.tolist())
        if found >= max(1, _LEAST_SHARE * len(pairs)):
            LOGGER.warning(
                "relation %s has %d of %d pairs of %s for validation and testing (a sample) in the other direction,"
                " where a model finds them; train with --relation-fanout %s=0, and rev_%s=0 with"
                " --reverse, or leave %s out of the graph",
                *(other.name, found, len(pairs), name, other.name, other.name, other.name),
            )


def _sampled(links: Links) -> NDArray[np.int64]:
    """(num_pairs, 2) int64 pairs for validation and testing, at equal distances."""
    parts = [np.empty((0, 2), np.int64)]
    for split in ("valid", "test"):
        count = links.num_pairs.get(split, 0)
        at = np.unique(np.linspace(0, count - 1, min(count, _SAMPLED)).astype(np.int64)).tolist()
        parts += [links.pair(split, number, number + 1) for number in at]
    return np.concatenate(parts)


def _has_edge(relation: Relation, source: int, target: int) -> bool:
    """Whether a relation has an edge; reads a few entries, however many its row has."""
    number = int(np.searchsorted(relation.block_rows, target, "right")) - 1
    row = target - relation.block_rows[number]
    start, stop = relation.stored_pointers(number).read(row, row + 2).tolist()
    columns = relation.columns(number)
    # Columns ascend within a row.
    while stop - start > _READ:
        middle = (start + stop) // 2
        is_before = int(columns.read(middle, middle + 1)[0]) <= source
        start, stop = (middle, stop) if is_before else (start, middle)
    return bool((columns.read(start, stop) == source).any())
