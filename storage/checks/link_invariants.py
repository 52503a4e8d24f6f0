"""Invariants of links: their pairs are in order, and together with the message graph they are the graph."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.links import (
    BASELINES,
    CLASS,
    NUMBER,
    OWN_NEGATIVES,
    PAIR,
    VALUE_DTYPES,
    Links,
    baseline_path,
)
from gnnloom.storage.artifacts.typed.typed_graph import Relation, TypedGraph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import CorruptError, GnnloomError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.schema import LINK_SPLITS
from gnnloom.storage.matrix.fingerprint import fingerprint_entries, scan_rows

#: Rows of arrays with few columns that are in memory at a time.
_STEP = 1 << 18
_MASK = (1 << 64) - 1


def check_links(dataset: Dataset, artifact: Artifact) -> None:
    """Check all arrays and, if the graphs exist, that the message graph lacks exactly the held-out edges.

    Raises:
        CorruptError: an invariant is broken.
    """
    links = Links(artifact)
    if links.kind not in (PAIR, CLASS, NUMBER):
        raise CorruptError(f"{artifact.path}: values of kind {links.kind!r}")
    relation = _relation(dataset, links)
    for split in LINK_SPLITS:
        _check_pairs(links, split, relation)
        _check_given(links, split)
        _check_baselines(links, split)
    for start, stop in _steps(links.num_pairs["train"] if links.relation is None else 0):
        # Reading compares the entries of unweighted graphs with their bounds.
        if not np.isfinite(links.weight(start, stop)).all():
            raise CorruptError(f"{artifact.path}/train/weight: not a finite number in rows {start}:{stop}")
        if links.excludes_reverse and not np.isfinite(links.reverse_weight(start, stop)).all():
            raise CorruptError(f"{artifact.path}/train/reverse_weight: not a finite number in rows {start}:{stop}")
    _check_held_out(dataset, links)


def _check_pairs(links: Links, split: str, relation: Relation | None) -> None:
    for start, stop in _steps(links.num_pairs[split]):
        source, target = links.pair(split, start, stop).T
        if relation is not None and f"{split}/edge" in links.artifact:
            _check_edges(links, split, relation, start, stop)
        if not links.can_be_loops:
            # Equal numbers are different vertices.
            continue
        wrong = np.flatnonzero(source >= target if links.symmetric else source == target)
        if len(wrong):
            raise CorruptError(
                f"{links.artifact.path}/{split}/pair: pair {start + wrong[0]} is"
                f" ({source[wrong[0]]}, {target[wrong[0]]}), a loop, or in descending order"
            )


def _relation(dataset: Dataset, links: Links) -> Relation | None:
    """The relation that links were drawn from; None if they are not of one, or it is gone or damaged."""
    try:
        matrix = _matrix(dataset, links, links.graph)
    except GnnloomError:
        return None
    return matrix if isinstance(matrix, Relation) else None


def _check_edges(links: Links, split: str, relation: Relation, start: int, stop: int) -> None:
    """Check that some pairs are the edges of the relation at their positions, which ascend, also across a step."""
    where, pairs = f"{links.artifact.path}/{split}/edge", links.pair(split, start, stop)
    edges = links.edge(split, start, stop)
    if (np.diff(links.edge(split, max(0, start - 1), stop)) <= 0).any():
        raise CorruptError(f"{where}: positions that do not ascend in rows {start}:{stop}")
    for number, first in enumerate(accumulate(relation.block_nnz[:-1], initial=0)):
        begin, end = np.searchsorted(edges, (first, first + relation.block_nnz[number]))
        if begin < end:
            own = edges[begin:end] - first
            columns = relation.columns(number).read(int(own[0]), int(own[-1]) + 1)[own - own[0]]
            rows = np.searchsorted(relation.pointers(number), own, "right") - 1 + relation.block_rows[number]
            if (pairs[begin:end] != np.stack([columns, rows], axis=1)).any():
                raise CorruptError(f"{where}: pairs of rows {start}:{stop} are not the edges at their positions")


def _check_given(links: Links, split: str) -> None:
    """Check values and negatives; reading them compares ids and classes with their bounds."""
    where, has_values = links.artifact.path, f"{split}/value" in links.artifact
    if has_values != (links.kind != PAIR):
        raise CorruptError(f"{where}/{split}: the manifest says {links.kind}, which does not fit its values")
    if has_values and links.artifact.record(f"{split}/value").dtype != VALUE_DTYPES[links.kind]:
        raise CorruptError(f"{where}/{split}/value: not of the type of a {links.kind}")
    for start, stop in _steps(links.num_pairs[split] if has_values else 0):
        if not np.isfinite(links.value(split, start, stop)).all():
            raise CorruptError(f"{where}/{split}/value: not a finite number in rows {start}:{stop}")
    for width, read in (
        (links.num_negatives(split), links.negative),
        (links.num_replaced(split), links.negative_source),
    ):
        for start, stop in _steps(links.num_pairs[split] if width else 0, width):
            read(split, start, stop)
    for start, stop in _steps(links.num_pooled(split)):
        if links.pool(split, start, stop).shape[1] != 2:
            raise CorruptError(f"{where}/{split}/pool: not pairs")


def _check_baselines(links: Links, split: str) -> None:
    """Check that each pair and negative has a score, and that scores are finite and not negative."""
    for kind in ("pair", "pool", *OWN_NEGATIVES):
        scored, path = f"{split}/{kind}", baseline_path(f"{split}/{kind}")
        if path not in links.artifact:
            continue
        shape = links.artifact.record(scored).shape if scored in links.artifact else (0,)
        rows = shape if kind in OWN_NEGATIVES else shape[:1]
        stored = links.artifact.record(path).shape
        if stored != (*rows, len(BASELINES)):
            raise CorruptError(f"{links.artifact.path}/{path}: shape {stored}, expected {(*rows, len(BASELINES))}")
        for start, stop in _steps(stored[0], math.prod(stored[1:])):
            found = links.baseline(scored, start, stop)
            if not (np.isfinite(found) & (found >= 0)).all():
                raise CorruptError(f"{links.artifact.path}/{path}: not a number from 0 in rows {start}:{stop}")


def _check_held_out(dataset: Dataset, links: Links) -> None:
    """Compare fingerprints: the graph has the entries of the message graph and of the held-out pairs.

    Only if all held-out pairs are edges of the graph, like pairs drawn from it, and hold out nothing else.
    """
    entries = 2 if links.symmetric else 1
    held_out = [split for split in LINK_SPLITS if split != "train" or links.artifact.facts["train_held_out"]]
    total = sum(links.num_pairs[split] for split in held_out) * entries
    given = "edges" in links.artifact.facts
    if links.relation is not None and given:
        _check_positions(links)
    if (
        links.message_graph == links.graph
        or (links.together and given)
        or links.artifact.facts["held_out_entries"] != total
    ):
        return
    try:
        graph, message = (_matrix(dataset, links, key) for key in (links.graph, links.message_graph))
        found = _pattern(graph) - _pattern(message)
    except GnnloomError:
        # Gone or damaged, which its own check reports.
        return
    wanted = sum(_pairs_pattern(links, split) for split in held_out)
    if (found - wanted) & _MASK:
        raise CorruptError(
            f"{links.artifact.path}: the held-out pairs are not the entries that graph/{links.message_graph} lacks"
        )


def _check_positions(links: Links) -> None:
    """Check the positions of the edges of a relation that given pairs hold out: they ascend, and none is missing."""
    count, facts = 0, links.artifact.facts
    for split in LINK_SPLITS:
        path = f"{split}/held_out"
        if path not in links.artifact:
            continue
        stored, last = links.held_out(split), -1
        count += len(stored)
        for start, stop in _steps(len(stored)):
            found = stored.read(start, stop)
            if (np.diff(found, prepend=last) <= 0).any():
                raise CorruptError(f"{links.artifact.path}/{path}: positions that do not ascend in rows {start}:{stop}")
            last = int(found[-1])
    if count != facts["held_out_entries"]:
        raise CorruptError(f"{links.artifact.path}: {count:,} held-out edges, expected {facts['held_out_entries']:,}")


def _matrix(dataset: Dataset, links: Links, key: str) -> BlockMatrix:
    """A graph, or in a graph with types the relation of the links."""
    artifact = Artifact(dataset.path / "graph" / Path(key).name)
    return Graph(artifact) if links.relation is None else TypedGraph(artifact).relation(links.relation.name)


def _pattern(graph: BlockMatrix) -> int:
    """Fingerprint of the pattern of a graph; one chunk of a block and its row pointers are in memory at a time."""
    total, no_weights = 0, np.empty(0, np.uint32)
    for number in range(graph.num_blocks):
        pointers, columns, previous = graph.pointers(number), graph.columns(number), -1
        for start in range(0, len(columns), columns.chunk_rows):
            found = columns.read(start, min(start + columns.chunk_rows, len(columns)))
            first = graph.block_rows[number]
            forward, _, previous, _ = scan_rows(
                pointers, start, found, no_weights, first, previous, graph.num_columns, graph.parallel > 0
            )
            total += int(forward)
    return total


def _pairs_pattern(links: Links, split: str) -> int:
    total = 0
    for start, stop in _steps(links.num_pairs[split]):
        source, target = _ends(links.pair(split, start, stop))
        total += int(fingerprint_entries(target, source))
        if links.symmetric:
            total += int(fingerprint_entries(source, target))
    return total


def _ends(pairs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


def _steps(count: int, width: int = 1) -> Iterator[tuple[int, int]]:
    """Ranges of rows of ``width`` numbers each that fit in memory."""
    step = max(1, _STEP // max(1, width))
    for start in range(0, count, step):
        yield start, min(start + step, count)
