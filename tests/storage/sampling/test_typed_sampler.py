"""Batches of graphs with types: each row of a relation is a part of the stored row, and hops lead where edges lead."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.sampling.layers.graph_view import MatrixView
from gnnloom.storage.sampling.layers.labor import LaborView
from gnnloom.storage.sampling.layers.seeds import VertexSeeds
from gnnloom.storage.sampling.layers.typed import RelationView, TypedNeighborSampler, TypedSample
from support.chi_squared import chance_of_counts
from support.covering import examples
from support.graphs import random_adjacency
from support.samples import in_memory, seeded

_COUNTS = {"a": 40, "b": 25, "c": 9, "alone": 3}
_ENDS = {"ab": ("a", "b"), "ba": ("b", "a"), "aa": ("a", "a"), "cb": ("c", "b"), "empty": ("c", "a")}


def _relations(seed: int) -> dict[str, RelationView]:
    """Relations with parallel edges, one of them without edges."""
    rng, found = np.random.default_rng(seed), {}
    for name, (source, target) in _ENDS.items():
        count = 0 if name == "empty" else 150
        row, column = np.sort(rng.integers(0, _COUNTS[target], count)), rng.integers(0, _COUNTS[source], count)
        column = column[np.lexsort((column, row))].astype(np.int32)
        indptr = np.searchsorted(row, np.arange(_COUNTS[target] + 1)).astype(np.int64)
        matrix = CSR(0, indptr, column, None, _COUNTS[source])
        found[name] = RelationView(name, source, target, MatrixView(matrix))
    return found


def _sampler(
    relations: dict[str, RelationView], fanouts: Mapping[str, tuple[int, ...]], seed: int = 1, **options: Any
) -> TypedNeighborSampler:
    return TypedNeighborSampler(list(_COUNTS), list(relations.values()), seed, fanouts, **options)


def _matrix(view: RelationView) -> CSR:
    assert isinstance(view.view, MatrixView)
    return view.view.matrix


def _check(sample: TypedSample, relations: dict[str, RelationView], fanouts: Mapping[str, tuple[int, ...]]) -> None:
    """Check every row of a sample against the stored rows, hop by hop."""
    first = {name: np.concatenate([[0], np.cumsum(sample.num_vertices[name])]) for name in _COUNTS}
    for name, vertices in sample.vertices.items():
        assert len(np.unique(vertices)) == len(vertices) == first[name][-1]
        for start, stop in pairwise(first[name]):
            assert (np.diff(vertices[start:stop]) > 0).all()
    reached = {name: set(sample.vertices[name][: first[name][1]].tolist()) for name in _COUNTS}
    num_hops = len(next(iter(fanouts.values())))
    for hop in range(num_hops):
        found: dict[str, set[int]] = {name: set() for name in _COUNTS}
        for name, view in relations.items():
            block, matrix, fanout = sample.blocks[name], _matrix(view), fanouts[name][hop]
            rows = range(first[view.target][hop], first[view.target][hop + 1])
            drawn = 0
            for row in rows:
                vertex = sample.vertices[view.target][row]
                whole = range(matrix.indptr[vertex], matrix.indptr[vertex + 1])
                start, stop = block.matrix.indptr[row], block.matrix.indptr[row + 1]
                entry = block.entry[start:stop]
                assert block.row_nnz[row] == len(whole)
                wanted = len(whole) if fanout == ALL else min(fanout, len(whole))
                assert len(set(entry.tolist())) == len(entry) == wanted
                assert set(entry.tolist()) <= set(whole)
                column = sample.vertices[view.source][block.matrix.indices[start:stop]]
                np.testing.assert_array_equal(column, matrix.indices[entry])
                found[view.source] |= set(column.tolist())
                drawn += len(entry)
            assert sample.num_entries[name][hop] == drawn
        for name in _COUNTS:
            added = sample.vertices[name][first[name][hop + 1] : first[name][hop + 2]]
            assert set(added.tolist()) == found[name] - reached[name]
            reached[name] |= found[name]


@settings(max_examples=examples(15), deadline=None)
@given(
    st.integers(0, 99),
    st.lists(st.tuples(st.sampled_from([ALL, 0, 1, 3]), st.sampled_from([ALL, 0, 2])), min_size=5, max_size=5),
)
def test_rows_are_parts_of_the_stored_rows_and_hops_lead_where_edges_lead(
    seed: int, drawn: list[tuple[int, int]]
) -> None:
    relations, fanouts = _relations(seed), dict(zip(_ENDS, drawn, strict=True))
    sampler = _sampler(relations, fanouts)
    batches = VertexSeeds(np.arange(0, _COUNTS["b"], 2), 5, 1)
    for batch in range(3):
        # Seeds of one type, and seeds of two.
        seeds = {"b": batches.of(2, batch), **({"a": np.arange(4, 9)} if batch else {})}
        sample = sampler.sample_of(seeds, 2, batch)
        for name, wanted in seeds.items():
            assert sample.num_vertices[name][0] == len(wanted)
            np.testing.assert_array_equal(sample.vertices[name][: len(wanted)], wanted)
        _check(sample, relations, fanouts)
        again = _sampler(relations, fanouts).sample_of(seeds, 2, batch)
        for name in _ENDS:
            np.testing.assert_array_equal(sample.blocks[name].entry, again.blocks[name].entry)


def test_draws_differ_between_batches_epochs_seeds_and_relations_and_depend_on_nothing_else() -> None:
    relations, fanouts = _relations(3), dict.fromkeys(_ENDS, (2, 2))
    seeds = {"b": np.arange(0, _COUNTS["b"], 2)}
    sampler = _sampler(relations, fanouts)
    drawn = sampler.sample_of(seeds, 0, 0).blocks["ab"].entry.tolist()
    others = [
        sampler.sample_of(seeds, 0, 1),
        sampler.sample_of(seeds, 1, 0),
        _sampler(relations, fanouts, seed=2).sample_of(seeds, 0, 0),
    ]
    assert all(other.blocks["ab"].entry.tolist() != drawn for other in others)
    twin = {**relations, "twin": RelationView("twin", "a", "b", relations["ab"].view)}
    both = _sampler(twin, {**fanouts, "twin": (2, 2)}).sample_of(seeds, 0, 0)
    # Rows of the seeds are the first rows.
    blocks = both.blocks["ab"], both.blocks["twin"]
    first = [block.entry[: block.matrix.indptr[len(seeds["b"])]].tolist() for block in blocks]
    assert first[0] == drawn[: len(first[0])]
    assert first[1] != first[0]


def test_one_relation_gives_the_hops_of_a_graph_without_types() -> None:
    adjacency = random_adjacency(200, 900, 4, symmetric=False)
    graph = in_memory(adjacency)
    seeds = np.arange(0, 200, 9)
    untyped = seeded(graph, 0, seeds, [ALL, ALL], 30, draw_once=True).sample(0, 0)
    view = RelationView("edge", "v", "v", MatrixView(graph.matrix))
    typed = TypedNeighborSampler(["v"], [view], 0, {"edge": [ALL, ALL]}).sample_of({"v": seeds}, 0, 0)
    np.testing.assert_array_equal(typed.vertices["v"], untyped.vertices)
    for name in ("indptr", "indices"):
        found, wanted = (getattr(block.matrix, name) for block in (typed.blocks["edge"], untyped.blocks[0]))
        np.testing.assert_array_equal(found, wanted)


def test_excluded_edges_are_not_drawn_nor_are_edges_parallel_to_them() -> None:
    relations, fanouts = _relations(5), dict.fromkeys(_ENDS, (ALL,))
    matrix = _matrix(relations["ab"])
    row = np.repeat(np.arange(matrix.num_rows), np.diff(matrix.indptr))
    chosen = np.arange(0, matrix.nnz, 7)
    sampler = _sampler(relations, fanouts)
    excluded = sampler.excluded({"ab": (row[chosen], matrix.indices[chosen])})
    pairs = {(int(row[at]), int(matrix.indices[at])) for at in chosen}
    wanted = [at for at in range(matrix.nnz) if (int(row[at]), int(matrix.indices[at])) in pairs]
    assert excluded["ab"].tolist() == wanted
    assert len(wanted) > len(chosen)
    sample = sampler.sample_of({"b": np.arange(_COUNTS["b"])}, 0, 0, excluded)
    assert sorted(sample.blocks["ab"].entry.tolist()) == sorted(set(range(matrix.nnz)) - set(wanted))


@pytest.mark.parametrize("wrong", [(-2,), (), (2, 2)])
def test_fanouts_that_cannot_be_are_refused(wrong: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"fan-outs (of \[|\[-2\] of relation ab)"):
        _sampler(_relations(0), {**dict.fromkeys(_ENDS, (2,)), "ab": wrong})


@pytest.mark.parametrize("replace", [False, True])
def test_joint_relations_draw_their_fanout_in_total_and_others_by_themselves(replace: bool) -> None:
    relations, seeds = _relations(3), {name: np.arange(_COUNTS[name]) for name in ("a", "b")}
    fanouts = {**dict.fromkeys(_ENDS, (4, 2)), "cb": (1, 1)}
    matrix = _matrix(relations["ab"])
    row = np.repeat(np.arange(matrix.num_rows), np.diff(matrix.indptr))
    for joint in (set(_ENDS) - {"cb"}, {"ab", "ba"}):
        sampler = _sampler(relations, fanouts, joint=joint, replace=replace)
        excluded = sampler.excluded({"ab": (row[::3], matrix.indices[::3])})
        sample = sampler.sample_of(seeds, 0, 0, excluded)
        for target in ("a", "b"):
            drawn, whole = np.zeros(_COUNTS[target], np.int64), np.zeros(_COUNTS[target], np.int64)
            for name, view in relations.items():
                if view.target != target:
                    continue
                block, rows = sample.blocks[name], len(seeds[target])
                own = np.diff(block.matrix.indptr[: rows + 1])
                if name in joint:
                    drawn, whole = drawn + own, whole + block.row_nnz[:rows]
                else:
                    given = fanouts[name][0]
                    assert (own == np.where(block.row_nnz[:rows] > 0, given, 0)).all() or not replace
                    assert replace or (own == np.minimum(block.row_nnz[:rows], given)).all()
                assert replace or len(set(block.entry.tolist())) == len(block.entry)
                assert not set(block.entry.tolist()) & set(excluded.get(name, np.empty(0)).tolist())
            assert (drawn == (np.where(whole > 0, 4, 0) if replace else np.minimum(whole, 4))).all()


@pytest.mark.parametrize("view", [MatrixView, LaborView])
@pytest.mark.parametrize("replace", [False, True])
def test_every_edge_of_the_union_of_joint_relations_is_equally_likely(view: type[MatrixView], replace: bool) -> None:
    if replace and view is LaborView:
        pytest.skip("draws without replacement")
    # Relations of very different lengths, one of them without edges.
    lengths = {"few": 3, "many": 17, "none": 0}
    relations = [
        RelationView(
            name, "s", "t", view(CSR(0, np.array([0, count, count]), np.arange(count, dtype=np.int32), None, 20))
        )
        for name, count in lengths.items()
    ]
    fanouts, found = dict.fromkeys(lengths, (5,)), {name: np.zeros(count) for name, count in lengths.items()}
    sampler = TypedNeighborSampler(["s", "t"], relations, 7, fanouts, joint=set(lengths), replace=replace)
    pairs = np.zeros(6)
    for batch in range(4000):
        sample = sampler.sample_of({"t": np.array([0])}, 0, batch)
        for name, counts in found.items():
            np.add.at(counts, sample.blocks[name].entry, 1)
        pairs[sample.blocks["few"].matrix.nnz] += 1
    assert chance_of_counts(np.concatenate([*found.values()])) > 1e-3
    few = np.array([math.comb(3, k) * math.comb(17, 5 - k) for k in range(6)], float)
    if replace:
        few = np.array([math.comb(5, k) * 3.0**k * 17.0 ** (5 - k) for k in range(6)])
    expected = few / few.sum() * pairs.sum()
    kept = expected > 5
    pooled = [np.append(each[kept], each[~kept].sum()) for each in (pairs, expected)]
    assert chance_of_counts(*(each[pooled[1] > 0] for each in pooled)) > 1e-3


def test_one_joint_relation_to_each_type_draws_as_without_a_total() -> None:
    relations = {name: each for name, each in _relations(3).items() if name in {"ab", "ba"}}
    fanouts, seeds = dict.fromkeys(relations, (3, 2)), {"b": np.arange(0, _COUNTS["b"], 2)}
    for replace in (False, True):
        samples = [
            _sampler(relations, fanouts, joint=joint, replace=replace).sample_of(seeds, 1, 2)
            for joint in (set(relations), ())
        ]
        for name in relations:
            first, second = (sample.blocks[name].entry for sample in samples)
            np.testing.assert_array_equal(first, second)


def test_all_neighbors_in_total_are_all_neighbors_of_each_relation() -> None:
    relations, fanouts = _relations(3), dict.fromkeys(_ENDS, (ALL, ALL))
    sample = _sampler(relations, fanouts, joint=set(_ENDS)).sample_of({"b": np.arange(9)}, 0, 0)
    _check(sample, relations, fanouts)


def test_fanouts_of_joint_relations_that_differ_are_refused() -> None:
    with pytest.raises(InputError, match=r"joint relations \['ab', 'cb'\]"):
        _sampler(_relations(0), {**dict.fromkeys(_ENDS, (2,)), "ab": (3,)}, joint={"ab", "cb"})
