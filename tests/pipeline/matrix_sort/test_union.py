"""The union of the relations of a graph with types has their entries, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings

from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.matrix_sort.reverses import reverse_relations
from gnnloom.pipeline.matrix_sort.union import UnionPlan, union_graph
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.phase import count
from gnnloom.pipeline.tasks.sizes import TypedSizes
from gnnloom.storage import Catalog, Dataset, Graph, TypedGraph
from gnnloom.storage.artifacts.typed.union import UnionSpec
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import CorruptError
from support.covering import examples
from support.damage import replace_array
from support.stopping import run_in_steps
from support.typed_dense import dense_union, ingest_kept, typed_problems
from support.typed_tables import MANY_FILES, TypedProblem, random_problem

DIRECTIONS = ("forward", "backward", "both")
#: Relations in many blocks, whose rows are united in many steps.
MANY_STEPS = replace(MANY_FILES, step_entries=9)
HERE = InProcessCluster(scratch=MANY_STEPS)


def _check(union: Graph, graph: TypedGraph, direction: str) -> None:
    pattern, entries = dense_union(graph, direction)
    np.testing.assert_array_equal(union.to_scipy().toarray() > 0, pattern)
    np.testing.assert_array_equal(union.degree(), pattern.sum(axis=1))
    np.testing.assert_array_equal(union.row_entries(0, union.degree()), entries)
    assert (union.nnz, union.entries, union.symmetric) == (pattern.sum(), entries.sum(), direction == "both")


def _stored(catalog: Catalog, folder: Path, seed: int) -> tuple[Dataset, TypedGraph]:
    dataset = catalog.create("shop")
    return dataset, random_problem(seed).ingest(dataset, folder / "tables", HERE, IngestOptions(merge="keep"))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_union_is_the_relations_however_often_the_stage_is_stopped(
    catalog: Catalog, tmp_path: Path, direction: str
) -> None:
    dataset, graph = _stored(catalog, tmp_path, 3)
    reverses = reverse_relations(dataset, graph, HERE)
    union, ran = run_in_steps(
        lambda cluster: union_graph(dataset, graph, UnionSpec(direction), cluster), 4, scratch=MANY_STEPS
    )
    assert sum(name == "unite_block" for name, _ in ran) == union.num_blocks > 8
    _check(union, graph, direction)
    assert all(finding.problem is None for finding in dataset.verify())
    # The plan from stored sizes has the tasks that ran.
    counted = count(UnionPlan(TypedSizes.of(graph, reverses), UnionSpec(direction)).phases())
    assert sum(each.tasks for each in counted) == len({name for _, name in ran})
    dataset.remove_artifact("transpose", union.artifact.key)
    at_once = InProcessCluster(scratch=MANY_FILES)
    assert union_graph(dataset, graph, UnionSpec(direction), at_once).artifact.digest == union.artifact.digest


#: Parallel edges, and many rows without edges.
FEW_EDGES = TypedProblem({("user", "knows", "user"): [(0, 0), (0, 0)]}, {"user": list(range(40))}, "drop")


@settings(max_examples=examples(8), deadline=None)
@given(problem=typed_problems())
@example(problem=FEW_EDGES)
def test_random_unions(tmp_path_factory: pytest.TempPathFactory, problem: TypedProblem) -> None:
    folder = tmp_path_factory.mktemp("union")
    dataset = Catalog(folder / "catalog").create("g")
    graph = ingest_kept(problem, dataset, folder)
    for direction in DIRECTIONS:
        _check(union_graph(dataset, graph, UnionSpec(direction), HERE), graph, direction)
    assert all(finding.problem is None for finding in dataset.verify())


def test_a_union_with_other_edges_is_found(catalog: Catalog, tmp_path: Path) -> None:
    dataset, graph = _stored(catalog, tmp_path, 1)
    union = union_graph(dataset, graph, UnionSpec(), HERE)
    last = f"{union.block_path(union.num_blocks - 1)}/indices"

    def other(indices: np.ndarray) -> np.ndarray:
        at = next(k for k in range(1, len(indices)) if indices[k] > indices[k - 1] + 1)
        indices[at] -= 1
        return indices

    with pytest.raises(CorruptError, match="differs from the relations"):
        check_artifact(dataset, replace_array(union.artifact, last, other))
