"""Reverses of relations are their transposes, and number the same edges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.matrix_sort.reverses import reverse_relations
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset, TypedGraph
from gnnloom.storage.artifacts.typed.reverses import Reverses
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import CorruptError
from support.damage import replace_array
from support.stopping import run_in_steps
from support.typed_tables import MANY_FILES, TypedProblem, random_problem

#: Many files, blocks and ranges of edges.
SCRATCH = replace(MANY_FILES, read_edges=9)
HERE = InProcessCluster(scratch=SCRATCH)


@pytest.fixture
def stored(catalog: Catalog, tmp_path: Path) -> tuple[Dataset, TypedGraph]:
    """Relations in many blocks, with parallel edges."""
    dataset = catalog.create("shop")
    return dataset, _ingest(dataset, tmp_path / "tables")


def _ingest(dataset: Dataset, folder: Path) -> TypedGraph:
    return random_problem(3).ingest(dataset, folder, HERE, IngestOptions(merge="keep"))


def _check(reverses: Reverses, graph: TypedGraph) -> None:
    for each in reverses.relations:
        assert each.name == f"rev_{each.relation.name}"
        rows, columns = [], []
        for block in each.blocks():
            rows.append(np.repeat(np.arange(block.num_rows), np.diff(block.indptr)) + block.row_offset)
            columns.append(block.indices)
        opened = [each.positions(number) for number in range(each.num_blocks)]
        position = np.concatenate([stored.read() for stored in opened if stored is not None])
        assert np.sort(position).tolist() == list(range(each.nnz))
        sources, targets = (
            np.concatenate([block[end] for block in graph.relation(each.relation.name).edge_blocks()]) for end in (0, 1)
        )
        np.testing.assert_array_equal(np.concatenate(rows), sources[position])
        np.testing.assert_array_equal(np.concatenate(columns), targets[position])
        # In the order of the edges of the relation wherever both ends are equal.
        key = np.stack([np.concatenate(rows), np.concatenate(columns), position])
        assert (np.lexsort(key[::-1]) == np.arange(each.nnz)).all()


def test_reverses_are_the_same_edges_however_often_the_stage_is_stopped(stored: tuple[Dataset, TypedGraph]) -> None:
    dataset, graph = stored
    assert any(each.parallel for each in graph.relations)
    assert max(each.num_blocks for each in graph.relations) > 3
    reverses, ran = run_in_steps(lambda cluster: reverse_relations(dataset, graph, cluster), 9, scratch=SCRATCH)
    assert len(ran) > 30
    _check(reverses, graph)
    assert all(finding.problem is None for finding in dataset.verify())


def test_relations_may_have_the_longest_names(catalog: Catalog, tmp_path: Path) -> None:
    name = "r" * 100
    dataset = catalog.create("long")
    problem = TypedProblem({("a", name, "b"): [(1, 2), (1, 3)], ("b", "rev_x", "a"): [(2, 1)]}, {})
    graph = problem.ingest(dataset, tmp_path / "tables")
    with open_cluster(ClusterOptions(workers=0)) as cluster:
        reverses = reverse_relations(dataset, graph, cluster)
    # The reverse of a relation that is called as a reverse is called without it.
    assert [each.name for each in reverses.relations] == ["x", f"rev_{name}"]
    assert all(finding.problem is None for finding in dataset.verify())


@pytest.mark.slow
def test_workers_give_the_same_bytes(stored: tuple[Dataset, TypedGraph], tmp_path: Path, catalog: Catalog) -> None:
    dataset, graph = stored
    with open_cluster(ClusterOptions(workers=2)) as cluster:
        cluster.scratch = SCRATCH
        shared = reverse_relations(dataset, graph, cluster)
    other = catalog.create("other")
    again = _ingest(other, tmp_path / "tables")
    alone = reverse_relations(other, again, HERE)
    assert shared.artifact.digest == alone.artifact.digest
    _check(alone, again)


def test_wrong_reverses_are_damaged(stored: tuple[Dataset, TypedGraph]) -> None:
    dataset, graph = stored
    artifact = reverse_relations(dataset, graph, HERE).artifact
    check_artifact(dataset, artifact)
    path = "relation/rev_buys/block/00000"

    def swapped(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values[1:], values[:1]])

    positions = artifact.array(f"{path}/row").read()
    wrong = replace_array(artifact, f"{path}/row", lambda values: values * 0)
    with pytest.raises(CorruptError, match="each edge once"):
        check_artifact(dataset, wrong)
    whole = replace_array(wrong, f"{path}/row", lambda _: positions)
    with pytest.raises(CorruptError, match="rev_buys"):
        check_artifact(dataset, replace_array(whole, f"{path}/indices", swapped))
