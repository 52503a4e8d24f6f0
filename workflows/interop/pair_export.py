"""The pairs of links as a table for other programs, with the ids of the source."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from gnnloom.storage import Dataset
from gnnloom.storage.artifacts.links import PAIR, VALUE_DTYPES, Links
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.artifacts.typed.typed_graph import Relation
from gnnloom.storage.format.schema import LINK_SPLITS
from gnnloom.workflows.interop.export import end_columns, entries_at_once, mapped_ends
from gnnloom.workflows.interop.relation_export import value_columns, values_of_block
from gnnloom.workflows.interop.tables import ExportedColumn, Table


def pair_table(dataset: Dataset, key: str | None = None) -> Table:
    """Return the pairs of all splits: ends, split, values, and for pairs drawn from a relation the columns of edges.

    Ends are the ids or names of the source, in a graph with types within their types. NumPy's files hold vertex numbers
    instead of names.

    Args:
        key: key of the links.

    Raises:
        NotFoundError: the dataset has no such links, or the graph that they were drawn from is gone.
    """
    links = dataset.links(key)
    ends = dataset.end_ids(links)
    relation = None
    # Pairs from files need not be edges.
    if links.relation is not None and "train/edge" in links.artifact:
        relation = dataset.typed_graph(links.graph).relation(links.relation.name)
    columns = [*end_columns(*ends), ExportedColumn("split", None)]
    if links.kind != PAIR:
        columns.append(ExportedColumn("value", np.dtype(VALUE_DTYPES[links.kind])))
    if relation is not None:
        columns += value_columns(relation)
    total = sum(links.num_pairs.values())
    return Table(tuple(columns), total, lambda: _pieces(links, ends, relation), ("source", "target"))


def _pieces(links: Links, ends: tuple[SourceIds, SourceIds], relation: Relation | None) -> Iterator[tuple[Any, ...]]:
    step = entries_at_once(has_names=any(each.has_names for each in ends))
    with mapped_ends(*ends) as columns:
        for split in LINK_SPLITS:
            for number, start, stop in _ranges(links, split, step, relation):
                pairs = links.pair(split, start, stop)
                values = [] if links.kind == PAIR else [links.value(split, start, stop)]
                if relation is not None and number is not None:
                    values += values_of_block(relation, number, links.edge(split, start, stop))
                yield (*columns(*pairs.T), [split] * len(pairs), *values)


def _ranges(links: Links, split: str, step: int, relation: Relation | None) -> Iterator[tuple[int | None, int, int]]:
    """Ranges of pairs of a split whose edges are in one block of the relation, and the number of the block."""
    for start in range(0, links.num_pairs[split], step):
        stop = min(start + step, links.num_pairs[split])
        if relation is None:
            yield None, start, stop
            continue
        edges, firsts = links.edge(split, start, stop), np.cumsum([0, *relation.block_nnz])
        cuts = start + np.searchsorted(edges, firsts)
        for number, (begin, end) in enumerate(pairwise(cuts.tolist())):
            if begin < end:
                yield number, begin, end
