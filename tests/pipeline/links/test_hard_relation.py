"""Hard negatives of a relation are those that plain Python ranks first among the vertices of the right type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import gnnloom
from gnnloom.pipeline.links.hard_stage import draw_hard_negatives, hard_key
from gnnloom.pipeline.links.options import HardOptions
from gnnloom.pipeline.links.projection import project_hard
from gnnloom.pipeline.tasks.cluster import InProcessCluster, ThreadedCluster
from gnnloom.storage import Dataset
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.matrix.random_numbers import stream_key
from gnnloom.workflows.cli.main import cli
from support.commands import artifact_digests
from support.hard_negatives import allocation, cosines, neighbors_of, pushed, ranked
from support.links import mixed
from support.stopping import StoppingCluster, run_in_steps
from support.typed_papers import store, tables

#: Kernels of relations are compiled.
pytestmark = pytest.mark.slow

_GOLDEN, _SEED = 0x9E3779B97F4A7C15, 8


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setattr("gnnloom.pipeline.links.hard_stage.TASK_PAIRS", 7)
    monkeypatch.setattr("gnnloom.pipeline.links.baselines.COUNTED_SOURCES", 20)
    monkeypatch.setattr("gnnloom.pipeline.links.hard_negatives._WIDENED", 6)
    return store(tmp_path / "catalog", "papers", tables())


def linked(dataset: Dataset, relation: str, **options: Any) -> Links:
    return gnnloom.draw_links(dataset, relation=relation, valid=0.1, test=0.15, workers=0, **options)


def dense(dataset: Dataset, key: str, relation: str) -> NDArray[np.bool_]:
    """(num_sources, num_targets) whether there is an edge."""
    found: NDArray[np.bool_] = dataset.typed_graph(key).relation(relation).to_scipy().toarray().T != 0
    return found


def expected(
    dataset: Dataset, links: Links, pair: tuple[int, int], side: int, count: int, stream: int, *, features: bool
) -> list[int]:
    """The vertices that replace the target of a pair (side 0), or its source."""
    assert links.relation is not None
    name, kept, other = links.relation.name, pair[side], pair[1 - side]
    ends, is_one = (links.relation.source, links.relation.target), links.can_be_loops
    whole, message = (dense(dataset, key, name) for key in (links.graph, links.message_graph))
    edges = whole[kept] if side == 0 else whole[:, kept]
    if links.together:
        edges = edges | whole[:, kept] | whole[kept]
    own = {kept, other} if is_one else {other}
    candidates = [vertex for vertex in range(len(edges)) if not edges[vertex] and vertex not in own]
    of_ends = [dataset.vertices(of_type=each, graph=links.graph).feature() for each in ends] if features else []
    if is_one:
        neighbors, place, first = neighbors_of(message), kept, 0
        allocated = allocation(neighbors, place)
    else:
        num_sources, num_targets = message.shape
        square = np.zeros((num_sources + num_targets,) * 2, np.bool_)
        square[:num_sources, num_sources:] = message
        neighbors, first = neighbors_of(square), num_sources * (1 - side)
        place = kept + num_sources * side
        twice, allocated = allocation(neighbors, place), np.zeros(len(square))
        for vertex, near in enumerate(neighbors):
            for each in near:
                allocated[each] += twice[vertex] / len(near)
    scores = [allocated[first:], pushed(neighbors, place)[first:]]
    if features and is_one:
        scores.append(cosines(of_ends[0], of_ends[0][kept]))
    elif features:
        partners = np.flatnonzero(message[kept] if side == 0 else message[:, kept])
        feature = of_ends[1 - side]
        scores.append(cosines(feature, feature[partners].astype(np.float64).sum(0) / max(1, len(partners))))
    # Sums of fractions in another order may differ in the last bits.
    rounded = [[round(float(each[vertex]), 12) for vertex in candidates] for each in scores]
    ranks = np.sum([ranked(each) for each in rounded], axis=0)
    order = sorted(range(len(candidates)), key=lambda k: (ranks[k], mixed(stream + (candidates[k] + 1) * _GOLDEN)))
    return [candidates[k] for k in order[:count]]


@pytest.mark.parametrize(
    ("relation", "features", "options"),
    [
        ("writes", True, {}),
        ("writes", False, {"disjoint": 0.3}),
        ("cites", True, {"disjoint": 0.3}),
        ("cites", False, {"reciprocal": "apart"}),
    ],
)
def test_negatives_of_a_relation_are_those_that_python_ranks_first(
    dataset: Dataset, relation: str, features: bool, options: dict[str, Any]
) -> None:
    links = linked(dataset, relation, **options)
    settings = HardOptions(negatives=11, features=features, seed=_SEED)
    planned = project_hard(dataset, links, settings, 1)
    found = draw_hard_negatives(dataset, links, settings, InProcessCluster())
    assert found.artifact.key == hard_key(dataset, links, settings) == planned.key
    assert (found.message_graph, found.graph, found.relation) == (links.message_graph, links.graph, links.relation)
    checked = 0
    for split in ("train", "valid", "test"):
        np.testing.assert_array_equal(found.pair(split), links.pair(split))
        np.testing.assert_array_equal(found.edge(split), links.edge(split))
    for split in ("valid", "test"):
        key = int(stream_key(_SEED, f"links/hard/{split}"))
        assert (found.num_negatives(split), found.num_replaced(split), found.num_pooled(split)) == (6, 5, 0)
        for number, pair in enumerate(links.pair(split).tolist()):
            for side, array in enumerate((found.negative(split), found.negative_source(split))):
                stream = mixed(key + (2 * number + side + 1) * _GOLDEN)
                wanted = expected(dataset, links, tuple(pair), side, array.shape[1], stream, features=features)
                assert array[number].tolist() == wanted, (split, pair, side)
                checked += 1
    assert checked > 20
    for info in dataset.artifacts():
        check_artifact(dataset, dataset.find(info.kind, info.key))


@pytest.mark.parametrize("relation", ["writes", "cites"])
def test_planned_tasks_run_and_bytes_do_not_depend_on_workers_or_interruptions(dataset: Dataset, relation: str) -> None:
    links, cluster = linked(dataset, relation), StoppingCluster()
    draw_hard_negatives(dataset, links, HardOptions(negatives=4), InProcessCluster())
    options = HardOptions(negatives=6)
    planned = project_hard(dataset, links, options, 1)
    first = draw_hard_negatives(dataset, links, options, cluster)
    assert planned.tasks == len(cluster.ran)
    assert project_hard(dataset, links, options, 1).is_done
    files = artifact_digests(dataset)
    clusters: list[Callable[[], Any]] = [
        lambda: draw_hard_negatives(dataset, links, options, ThreadedCluster(3, 1 << 30)),
        lambda: run_in_steps(lambda stopping: draw_hard_negatives(dataset, links, options, stopping), 2),
    ]
    for again in clusters:
        dataset.remove_artifact("links", first.artifact.key)
        again()
        assert artifact_digests(dataset) == files


def test_pairs_of_files_keep_what_they_hold_out(dataset: Dataset, tmp_path: Path) -> None:
    pairs = dataset.typed_graph().relation("writes")
    sources, targets, _ = next(pairs.edge_blocks())
    distinct = np.unique(np.stack([sources, targets], 1), axis=0)
    for name, rows in (("valid", distinct[:9]), ("test", distinct[9:21])):
        np.savetxt(tmp_path / f"{name}.csv", rows, fmt="%d", delimiter=",", header="a,p", comments="")
    links = gnnloom.read_links(
        dataset, relation="writes", valid=tmp_path / "valid.csv", test=tmp_path / "test.csv", workers=0
    )
    found = gnnloom.draw_hard_negatives(dataset, relation="writes", negatives=4, workers=0)
    for split in ("valid", "test"):
        np.testing.assert_array_equal(found.held_out(split).read(), links.held_out(split).read())
    whole = dense(dataset, links.graph, "writes")
    for source, negatives in zip(found.pair("test")[:, 0], found.negative("test"), strict=True):
        assert not whole[source, negatives].any()
    check_artifact(dataset, found.artifact)


def test_a_relation_chooses_links_and_wrong_ones_are_refused(dataset: Dataset) -> None:
    writes, cites = linked(dataset, "writes"), linked(dataset, "cites")
    linked(dataset, "writes", values="class")
    found = gnnloom.draw_hard_negatives(dataset, relation="writes", negatives=2, workers=0)
    assert found.artifact.inputs["links"] == writes.artifact.key
    with pytest.raises(InputError, match=f"{writes.artifact.key}"):
        gnnloom.draw_hard_negatives(dataset, workers=0)
    with pytest.raises(NotFoundError, match=r"no links of relation 'write'.*did you mean"):
        gnnloom.draw_hard_negatives(dataset, relation="write", workers=0)
    with pytest.raises(InputError, match=r"relation writes: .* are links of relation cites"):
        gnnloom.draw_hard_negatives(dataset, links=cites.artifact.key, relation="writes", workers=0)
    with pytest.raises(InputError, match="can replace the target, fewer than 60; use fewer"):
        gnnloom.draw_hard_negatives(dataset, relation="cites", negatives=120, workers=0)
    linked(dataset, "writes", seed=1)
    with pytest.raises(InputError, match="several links of relation writes; choose with"):
        gnnloom.draw_hard_negatives(dataset, relation="writes", workers=0)
    command = ["--catalog", str(dataset.path.parent), "links", "papers", "hard", "--relation", "cites", "--plan"]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
