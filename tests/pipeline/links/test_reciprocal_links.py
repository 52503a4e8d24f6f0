"""Both directions of an edge are held out together if every edge has its reverse, whatever the flag at ingest says."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gnnloom.pipeline.links import reciprocity
from gnnloom.pipeline.links.given.given_stage import GivenLinks, store_links
from gnnloom.pipeline.links.hard_stage import draw_hard_negatives
from gnnloom.pipeline.links.options import DrawOptions, FileOptions, HardOptions, links_key
from gnnloom.pipeline.links.projection import project_links
from gnnloom.pipeline.links.reciprocity import find_reciprocity
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.tasks.cluster import InProcessCluster, ThreadedCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.format.schema import LINK_SPLITS
from support.covering import few_of
from support.graphs import random_adjacency, store_graph
from support.links import pairs_of
from support.stopping import StoppingCluster


def store(catalog: Catalog, adjacency: Any, name: str = "web", *, symmetric: bool = False, **how: Any) -> Dataset:
    dataset = catalog.create(name)
    store_graph(dataset, adjacency, symmetric=symmetric, num_blocks=3, **how)
    return dataset


def with_values(adjacency: Any, values: np.ndarray) -> Any:
    return scipy.sparse.csr_array((values, adjacency.indices, adjacency.indptr), shape=adjacency.shape)


def symmetric_values(adjacency: Any, seed: int, dtype: str) -> Any:
    values = np.random.default_rng(seed).uniform(0.5, 2, adjacency.nnz).astype(dtype)
    return scipy.sparse.csr_array(with_values(adjacency, values).maximum(with_values(adjacency, values).T)).astype(
        dtype
    )


def bipartite(seed: int) -> Any:
    """Edges between 0..79 and 80..199, each in both directions."""
    rng = np.random.default_rng(seed)
    half = scipy.sparse.coo_array((np.ones(600), (rng.integers(0, 80, 600), rng.integers(80, 200, 600))), (200, 200))
    both = scipy.sparse.csr_array(half + half.T)
    both.data[:] = 1
    both.sort_indices()
    return both


def draw(dataset: Dataset, **options: Any) -> Links:
    (info,) = dataset.ingested_graphs()
    return draw_links(dataset, dataset.graph(info.key), DrawOptions(**options), InProcessCluster())


def leaks(dataset: Dataset, links: Links) -> int:
    """How many held-out pairs have their reverse in the message graph or among the pairs for training."""
    message = dataset.graph(links.message_graph).to_scipy()
    train = {tuple(pair) for pair in links.pair("train").tolist()}
    held = [pair for split in ("valid", "test") for pair in links.pair(split).tolist()]
    return sum(bool(message[source, target]) or (target, source) in train for source, target in held)


GRAPHS = {
    "loops": lambda: random_adjacency(200, 900, 3, symmetric=True),
    "no loops": lambda: random_adjacency(200, 900, 4, symmetric=True, loops=False),
    "bipartite": lambda: bipartite(5),
    "equal weights": lambda: symmetric_values(random_adjacency(200, 900, 6, symmetric=True), 6, "float32"),
}


@pytest.mark.parametrize(("kind", "disjoint"), few_of(GRAPHS, [0.0, 0.3], together=1))
def test_links_of_symmetric_data_are_those_of_the_undirected_graph(
    catalog: Catalog, kind: str, disjoint: float, caplog: pytest.LogCaptureFixture
) -> None:
    adjacency, weighted = GRAPHS[kind](), kind == "equal weights"
    directed = store(catalog, adjacency, "directed", weighted=weighted)
    undirected = store(catalog, adjacency, "undirected", symmetric=True, weighted=weighted)
    with caplog.at_level(logging.WARNING, "gnnloom.pipeline"):
        found = draw(directed, disjoint=disjoint, seed=2)
    assert "every edge is there in both directions" in caplog.text
    wanted = draw(undirected, disjoint=disjoint, seed=2)
    assert found.symmetric
    assert found.artifact.digest == wanted.artifact.digest
    messages = [each.graph(links.message_graph) for each, links in ((directed, found), (undirected, wanted))]
    assert messages[0].artifact.digest == messages[1].artifact.digest
    assert messages[0].symmetric
    assert leaks(directed, found) == 0
    adjacent = adjacency.toarray() != 0
    for split in ("valid", "test"):
        source, target = found.pool(split).T
        assert not adjacent[target, source].any()
        assert not adjacent[source, target].any()
    for info in directed.artifacts():
        check_artifact(directed, Artifact(info.path))
    # Asking again finds them, and a graph that was removed is made again as it was.
    assert draw(directed, disjoint=disjoint, seed=2).artifact.key == found.artifact.key
    directed.remove_artifact("graph", found.message_graph)
    draw(directed, disjoint=disjoint, seed=2)
    assert directed.graph(found.message_graph).artifact.digest == messages[0].artifact.digest


def test_directions_that_are_kept_apart_are_those_of_earlier_versions(catalog: Catalog) -> None:
    adjacency = random_adjacency(200, 900, 3, symmetric=True)
    dataset = store(catalog, adjacency)
    links = draw(dataset, reciprocal="apart")
    assert not links.symmetric
    assert leaks(dataset, links) > 0
    assert sum(links.num_pairs.values()) == len(pairs_of(adjacency, symmetric=False))


def one_missing() -> Any:
    """A symmetric graph without one entry."""
    adjacency = random_adjacency(200, 900, 3, symmetric=True).tolil()
    row, column = np.argwhere(np.triu(adjacency.toarray(), 1))[7]
    adjacency[row, column] = 0
    found = scipy.sparse.csr_array(adjacency)
    found.eliminate_zeros()
    return found


def half_reciprocal() -> Any:
    one_way = scipy.sparse.csr_array(scipy.sparse.triu(random_adjacency(200, 500, 7, symmetric=True), 1))
    found = scipy.sparse.csr_array(one_way + random_adjacency(200, 500, 8, symmetric=True))
    found.data[:] = 1
    found.sort_indices()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("graph", "share"), [(one_missing, "99.9 %"), (half_reciprocal, None)])
def test_partly_reciprocal_graphs_warn_with_their_share_and_take_the_option(
    catalog: Catalog, caplog: pytest.LogCaptureFixture, graph: Any, share: str | None
) -> None:
    networkx = pytest.importorskip("networkx")
    adjacency = graph()
    dataset = store(catalog, adjacency)
    key = dataset.graph().artifact.key
    without_loops = networkx.from_scipy_sparse_array(adjacency, create_using=networkx.DiGraph)
    without_loops.remove_edges_from([*networkx.selfloop_edges(without_loops)])
    expected = f"{100 * networkx.overall_reciprocity(without_loops):.1f} %"
    assert share in (None, expected)
    with caplog.at_level(logging.WARNING, "gnnloom.pipeline"):
        apart = draw(dataset)
    assert f"{expected} of the edges have their reverse" in caplog.text
    assert "--reciprocal together" in caplog.text
    # As before there was the option.
    assert apart.artifact.key == links_key(key, DrawOptions())
    assert leaks(dataset, apart) > 0
    together = draw(dataset, reciprocal="together")
    assert leaks(dataset, together) == 0
    assert not together.symmetric
    assert together.together
    pairs = np.concatenate([together.pair(split) for split in LINK_SPLITS])
    assert sorted(map(tuple, pairs.tolist())) == sorted(map(tuple, pairs_of(adjacency, symmetric=False).tolist()))
    source, target = together.pair("train").T
    np.testing.assert_array_equal(together.reverse_weight(), adjacency[source, target])
    num_edges = len(pairs)
    assert abs(together.num_pairs["test"] - num_edges // 10) <= 1
    for info in dataset.artifacts():
        check_artifact(dataset, Artifact(info.path))


def test_a_graph_without_reverses_says_nothing(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    adjacency = scipy.sparse.csr_array(scipy.sparse.triu(random_adjacency(200, 900, 3, symmetric=True)))
    dataset = store(catalog, adjacency)
    with caplog.at_level(logging.WARNING, "gnnloom.pipeline"):
        links = draw(dataset)
    assert not caplog.text
    assert not links.symmetric


@pytest.mark.slow
def test_directions_with_different_weights_are_pairs_of_their_own_held_out_together(catalog: Catalog) -> None:
    adjacency = random_adjacency(200, 900, 3, symmetric=True)
    values = np.random.default_rng(0).uniform(0.5, 2, adjacency.nnz).astype(np.float32)
    dataset = store(catalog, with_values(adjacency, values), weighted=True)
    links = draw(dataset)
    assert not links.symmetric
    assert links.together
    assert leaks(dataset, links) == 0
    source, target = links.pair("train").T
    np.testing.assert_array_equal(links.weight(), with_values(adjacency, values)[target, source])
    # A step that excludes a pair excludes its reverse, which has another weight.
    np.testing.assert_array_equal(links.reverse_weight(), with_values(adjacency, values)[source, target])
    hard = draw_hard_negatives(dataset, links, HardOptions(negatives=10), InProcessCluster())
    np.testing.assert_array_equal(hard.reverse_weight(), links.reverse_weight())


def test_by_time_both_directions_are_held_out_if_their_times_are_equal(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    adjacency = symmetric_values(random_adjacency(200, 900, 3, symmetric=True), 5, "float64")
    dataset = store(catalog, adjacency, "equal", has_times=True)
    undirected = store(catalog, adjacency, "undirected", symmetric=True, has_times=True)
    found = draw(dataset, by="time")
    assert found.artifact.digest == draw(undirected, by="time").artifact.digest
    assert leaks(dataset, found) == 0
    values = np.random.default_rng(0).uniform(0.5, 2, adjacency.nnz)
    other = store(catalog, with_values(adjacency, values), "other", has_times=True)
    with caplog.at_level(logging.WARNING, "gnnloom.pipeline"):
        draw(other, by="time")
    assert "--undirected --times --merge max" in caplog.text
    with pytest.raises(InputError, match=r"reciprocal together:.*--merge"):
        draw(other, by="time", reciprocal="together")
    assert [info.state for info in other.artifacts("links")] == ["complete"]


def given(dataset: Dataset, folder: Any, **options: Any) -> Links:
    files: dict[str, Any] = {}
    for split, pairs in options.pop("files").items():
        (folder / f"{split}.txt").write_text("".join(f"{source} {target}\n" for source, target in pairs))
        files[split] = str(folder / f"{split}.txt")
    (info,) = dataset.ingested_graphs()
    how = GivenLinks.of(FileOptions(**files, **options))
    return store_links(dataset, dataset.graph(info.key), how, InProcessCluster())


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, -1])
def test_pairs_from_files_hold_both_directions_out(catalog: Catalog, tmp_path: Any, order: int) -> None:
    adjacency = random_adjacency(200, 900, 3, symmetric=True)
    dataset, undirected = (
        store(catalog, adjacency, name, symmetric=name == "undirected") for name in ("web", "undirected")
    )
    pairs = pairs_of(adjacency, symmetric=True)[:, ::order].tolist()
    files = {"valid": pairs[:20], "test": pairs[20:60]}
    found, wanted = (given(each, tmp_path, files=files) for each in (dataset, undirected))
    assert leaks(dataset, found) == 0
    assert found.artifact.digest == wanted.artifact.digest
    assert given(dataset, tmp_path, files=files, reciprocal="apart").num_pairs["train"] > found.num_pairs["train"]
    # An edge and its reverse in two splits are one pair in both.
    with pytest.raises(InputError, match="1 pair in several splits"):
        given(dataset, tmp_path, files={"valid": pairs[:1], "test": [pairs[0][::-1]]})
    # Pairs of which none is an edge leave the entries as they are, and are pairs without a direction all the same.
    absent = np.argwhere(adjacency.toarray() == 0)
    absent = absent[absent[:, 0] < absent[:, 1]][:4].tolist()
    none = given(dataset, tmp_path, files={"valid": absent[:2], "test": absent[2:]})
    message = dataset.graph(none.message_graph)
    assert none.symmetric
    assert message.symmetric
    assert message.nnz == adjacency.nnz


@pytest.mark.slow
def test_pairs_from_files_of_partly_reciprocal_graphs_take_the_option(catalog: Catalog, tmp_path: Any) -> None:
    adjacency = half_reciprocal()
    dataset = store(catalog, adjacency)
    pairs = pairs_of(adjacency, symmetric=False)
    # One direction of some edges, one that is no edge but has its reverse, and one that is not there at all.
    one_way = pairs[(adjacency.toarray()[pairs[:, 0], pairs[:, 1]] == 0)][:5]
    held = [*pairs[pairs[:, 0] < pairs[:, 1]][:80].tolist(), *one_way[:, ::-1].tolist(), [0, 199]]
    files: dict[str, Any] = {"valid": held[:20], "test": held[20:]}
    assert leaks(dataset, given(dataset, tmp_path, files=files)) > 0
    both = {tuple(pair) for source, target in held for pair in ((source, target), (target, source))}
    # All edges that are left, or those of a file.
    rest = [pair for pair in pairs.tolist() if tuple(pair) not in both]
    for files["train"] in (None, [*rest, [10, 199]]):
        chosen = {name: each for name, each in files.items() if each}
        together = given(dataset, tmp_path, files=chosen, reciprocal="together")
        message, (source, target) = dataset.graph(together.message_graph).to_scipy(), together.pair("train").T
        assert leaks(dataset, together) == 0
        assert sorted(map(list, zip(source.tolist(), target.tolist(), strict=True))) == sorted(files["train"] or rest)
        held_out = np.concatenate([together.pair("valid"), together.pair("test")])
        assert not message[held_out[:, 0], held_out[:, 1]].any()
        assert not message[held_out[:, 1], held_out[:, 0]].any()
        np.testing.assert_array_equal(together.weight(), message[target, source])
        np.testing.assert_array_equal(together.reverse_weight(), message[source, target])
    for info in dataset.artifacts():
        check_artifact(dataset, Artifact(info.path))
    # The reverse of a held-out pair is that pair in another split, whether one of them is an edge or not.
    files["train"] = [*rest, *(pair[::-1] for pair in held[-2:])]
    with pytest.raises(InputError, match=r"--reciprocal"):
        given(dataset, tmp_path, files=files, reciprocal="together")
    apart = given(dataset, tmp_path, files=files, reciprocal="apart")
    assert apart.num_pairs["train"] == len(files["train"])
    with pytest.raises(InputError, match=r"reciprocal together: .*keep-edges"):
        FileOptions(valid="v", test="t", keep_edges=True, reciprocal="together")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_reverse_of_an_edge_is_not_a_negative_if_both_are_held_out_together(
    catalog: Catalog, tmp_path: Any, seed: int
) -> None:
    adjacency = random_adjacency(40, 500, seed, symmetric=False, loops=bool(seed))
    dataset = store(catalog, adjacency)
    known = adjacency.toarray() != 0
    known |= known.T | np.eye(40, dtype=bool)
    allowed = {tuple(pair) for pair in np.argwhere(~known).tolist()}
    pairs = pairs_of(adjacency, symmetric=False)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]].tolist()
    options, files = DrawOptions(reciprocal="together", negatives=100), {"valid": pairs[:30], "test": pairs[30:50]}
    plan = project_links(dataset, dataset.graph(), options, 1, 1 << 30)
    drawn = draw_links(dataset, dataset.graph(), options, cluster := StoppingCluster())
    assert plan.tasks >= len(cluster.ran)
    for links in (drawn, given(dataset, tmp_path, files=files, reciprocal="together", negatives=100)):
        assert links.artifact.facts["non_edges"] == len(allowed)
        for split in ("valid", "test"):
            assert {tuple(pair) for pair in links.pool(split).tolist()} == allowed
    hard = draw_hard_negatives(dataset, drawn, HardOptions(negatives=6), InProcessCluster())
    for split in ("valid", "test"):
        source, target = hard.pair(split).T
        assert not known[source[:, None], hard.negative(split)].any()
        assert not known[hard.negative_source(split), target[:, None]].any()
    # Negatives of a file are counted if their reverse is an edge.
    files["test_negatives"] = np.argwhere(np.ones((40, 40)) - np.eye(40)).tolist()
    counted = given(dataset, tmp_path, files=files, reciprocal="together").artifact.facts["edges"]["test/pool"]
    assert counted == known.sum() - 40
    for info in dataset.artifacts():
        check_artifact(dataset, Artifact(info.path))


def test_reverses_too_few_to_be_among_the_counted_edges_are_held_out(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    adjacency = half_reciprocal()
    dataset = store(catalog, adjacency)
    monkeypatch.setattr(reciprocity, "_SAMPLED", 1)
    together = draw(dataset, reciprocal="together")
    assert together.together
    assert leaks(dataset, together) == 0


@pytest.mark.slow
def test_by_time_reverses_that_nobody_looked_at_cannot_be_held_out_together(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both directions would be held out by their own times, whatever the option says."""
    adjacency = half_reciprocal()
    times = np.random.default_rng(0).integers(0, 100, adjacency.nnz).astype(float)
    dataset = store(catalog, with_values(adjacency, times), has_times=True)
    half = scipy.sparse.triu(with_values(adjacency, times), 1).tocsr()
    one_way = store(catalog, half, "one-way", has_times=True)
    # Where all edges were looked at and none has its reverse, there is nothing to hold out together.
    assert len(draw(one_way, by="time", reciprocal="together").pair("test"))
    monkeypatch.setattr(reciprocity, "_SAMPLED", 1)
    for other in (dataset, store(catalog, half, "again", has_times=True)):
        with pytest.raises(InputError, match=r"reciprocal together:.*--merge"):
            draw(other, by="time", reciprocal="together")
        draw(other, by="time", reciprocal="apart")


@pytest.mark.slow
def test_hard_negatives_of_symmetric_data_are_edges_in_no_direction(catalog: Catalog) -> None:
    adjacency = random_adjacency(200, 900, 3, symmetric=True)
    dataset, undirected = (
        store(catalog, adjacency, name, symmetric=name == "undirected") for name in ("web", "undirected")
    )
    found, wanted = (
        draw_hard_negatives(each, draw(each), HardOptions(negatives=10), InProcessCluster())
        for each in (dataset, undirected)
    )
    assert found.symmetric
    assert found.artifact.digest == wanted.artifact.digest


def test_links_of_earlier_versions_that_held_out_one_direction_are_refused(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, partly = store(catalog, GRAPHS["loops"](), "full"), store(catalog, one_missing(), "partly")
    monkeypatch.setattr("gnnloom.pipeline.links.stage.find_reciprocity", lambda *_: None)
    for dataset in (full, partly):
        draw(dataset)
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"earlier version.*catalog rm full --artifact links/.*--reciprocal apart"):
        draw(full)
    assert len(full.artifacts("links")) == 1
    assert draw(partly).message_graph


@pytest.mark.parametrize("graph", [half_reciprocal, one_missing, GRAPHS["loops"]])
def test_an_estimate_of_the_share_is_near_it_and_full_graphs_are_known_exactly(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, graph: Any
) -> None:
    adjacency = graph()
    dataset = store(catalog, adjacency)
    adjacency.setdiag(0)
    adjacency.eliminate_zeros()
    wanted = adjacency.multiply(adjacency.T).nnz
    for sampled in (1 << 18, 200):
        monkeypatch.setattr(reciprocity, "_SAMPLED", sampled)
        with ArtifactWriter.begin(dataset.path, "links", {"sampled": sampled}, {}) as writer:
            found = find_reciprocity(writer, dataset.graph(), None, InProcessCluster())
            writer.discard()
        assert found.edges == adjacency.nnz
        assert found.is_full == (wanted == adjacency.nnz)
        assert found.is_exact == (sampled > adjacency.nnz or found.is_full)
        assert abs(found.reverse - wanted) <= (0 if sampled > adjacency.nnz else 0.15 * adjacency.nnz)


@pytest.mark.slow
def test_links_are_the_same_for_any_number_of_workers(catalog: Catalog) -> None:
    digests = set()
    for name, cluster in (("a", InProcessCluster()), ("b", ThreadedCluster(3, 1 << 30))):
        dataset = store(catalog, half_reciprocal(), name)
        options = DrawOptions(reciprocal="together")
        links = draw_links(dataset, dataset.graph(), options, cluster)
        digests.add(links.artifact.digest)
        if name == "a":
            assert project_links(dataset, dataset.graph(links.graph), options, 1, 1 << 30).is_done
    assert len(digests) == 1
