"""Links from files are the pairs in these files, by whatever ids; what is computed about them is NumPy's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.links.given.given_projection import project_given
from gnnloom.pipeline.links.given.given_stage import GivenLinks, store_links
from gnnloom.pipeline.links.given.id_lists import PairList, TargetMatrix
from gnnloom.pipeline.links.options import FileOptions
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.sources.reading.files import UnreachableError
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.pipeline.tasks.cluster import InProcessCluster, ThreadedCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact
from support.commands import artifact_digests
from support.covering import few_of
from support.links import pairs_of
from support.small_stages import SMALL_FILES, make_small
from support.stopping import StoppingCluster, run_in_steps, workers_and_tasks
from support.warnings_logged import warnings_logged

#: How ids are written, by the way in which the graph has them.
IDS: dict[str, Callable[[int], str]] = {
    "keep": str,
    "compact": lambda vertex: str(7 * vertex + 100),
    "names": lambda vertex: f"vertex-{vertex:04d}",
}
N = 120


def edge_list(symmetric: bool) -> np.ndarray:
    """(num_edges, 2) distinct edges source, target, such that every vertex occurs; without loops."""
    rng = np.random.default_rng(5)
    ring = np.stack([np.arange(N), (np.arange(N) + 1) % N], axis=1)
    edges = np.concatenate([ring, rng.integers(0, N, (500, 2))])
    edges = edges[edges[:, 0] != edges[:, 1]]
    if symmetric:
        edges = np.sort(edges, axis=1)
    return np.unique(edges, axis=0)


def write(path: Path, pairs: np.ndarray, ids: str, values: Sequence[Any] | None = None) -> str:
    lines = [" ".join(IDS[ids](vertex) for vertex in pair) for pair in pairs.tolist()]
    if values is not None:
        lines = [f"{line} {value}" for line, value in zip(lines, values, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def store(root: Path, ids: str, *, symmetric: bool, weighted: bool = False) -> tuple[Dataset, Any]:
    """A dataset with a graph, and its matrix."""
    edges = edge_list(symmetric)
    weights = np.random.default_rng(1).integers(1, 9, len(edges)).tolist() if weighted else None
    root.mkdir(parents=True, exist_ok=True)
    source = open_edges(None, [write(root / "edges.txt", edges, ids, weights)], {"weights": weighted})
    dataset = Catalog(root / "catalog").create("web")
    ingest_graph(dataset, source, IngestOptions(undirected=symmetric, ids=ids), InProcessCluster())
    return dataset, dataset.graph().to_scipy()


def given(dataset: Dataset, cluster: Any = None, **options: Any) -> Links:
    chosen = FileOptions(**options)
    (ingested,) = dataset.ingested_graphs()
    graph = dataset.graph(ingested.key)
    found = GivenLinks.of(chosen)
    links = store_links(dataset, graph, found, cluster or InProcessCluster())
    assert links.artifact.key == found.key(graph.artifact.key)
    return links


@pytest.mark.parametrize(
    ("ids", "symmetric", "weighted"), few_of(["keep", "compact", "names"], [False, True], [False, True], together=2)
)
def test_pairs_are_those_of_the_files_and_held_out_edges_leave_the_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids: str, symmetric: bool, weighted: bool
) -> None:
    make_small(monkeypatch.setattr)
    dataset, adjacency = store(tmp_path, ids, symmetric=symmetric, weighted=weighted)
    edges, rng = edge_list(symmetric), np.random.default_rng(3)
    order = rng.permutation(len(edges))
    test, valid = edges[order[:60]], edges[order[60:90]]
    # Some pairs for validation are no edges.
    absent = pairs_of(adjacency.toarray() == 0, symmetric=symmetric)
    valid = np.concatenate([valid, absent[:7]])[rng.permutation(37)]
    pool = np.concatenate([absent[10:40], edges[order[95:98]], test[:2]])
    if symmetric:
        # The order of the ends does not count.
        test = np.where(rng.random((60, 1)) < 0.5, test, test[:, ::-1])
    files = {
        "valid": write(tmp_path / "valid.txt", valid, ids),
        "test": write(tmp_path / "test.txt", test, ids),
        "test_negatives": write(tmp_path / "pool.txt", pool, ids),
    }
    with warnings_logged() as warned:
        links = given(dataset, negatives=0, **files)
    (warning,) = [text for text in warned if "negatives" in text]
    assert warning.startswith("no negatives for valid are stored: every evaluation compares each pair with a uniformly")
    assert warning.endswith("give some with --valid-negatives")
    for split, expected in (("test", test), ("valid", valid)):
        np.testing.assert_array_equal(links.pair(split), np.sort(expected, axis=1) if symmetric else expected)
    np.testing.assert_array_equal(links.pool("test"), pool)

    held = np.concatenate([edges[order[:90]], edges[order[:0]]])
    held_out = scipy.sparse.lil_array(adjacency.shape)
    for source, target in held:
        held_out[target, source] = 1
        if symmetric:
            held_out[source, target] = 1
    message = adjacency.toarray() * (1 - held_out.toarray())
    np.testing.assert_array_equal(dataset.graph(links.message_graph).to_scipy().toarray(), message)
    train = pairs_of(message, symmetric=symmetric)
    np.testing.assert_array_equal(links.pair("train"), train)
    np.testing.assert_array_equal(links.weight(), message[train[:, 1], train[:, 0]])
    facts = links.artifact.facts
    assert facts["edges"] == {"valid/pair": 30, "test/pair": 60, "test/pool": 5}
    assert facts["held_out_entries"] == 90 * (2 if symmetric else 1)
    for info in dataset.artifacts():
        check_artifact(dataset, Artifact(info.path))


@pytest.mark.slow
@pytest.mark.parametrize(("values", "symmetric"), few_of(["class", "number"], [False, True], together=1))
def test_pairs_for_training_have_the_entries_of_the_message_graph_and_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: str, symmetric: bool
) -> None:
    make_small(monkeypatch.setattr)
    dataset, adjacency = store(tmp_path, "names", symmetric=symmetric, weighted=True)
    edges, rng = edge_list(symmetric), np.random.default_rng(3)
    order = rng.permutation(len(edges))
    absent = pairs_of(adjacency.toarray() == 0, symmetric=symmetric)
    splits = {
        "train": np.concatenate([edges[order[50:300]], absent[5:25], edges[order[60:65]], edges[order[:3]]]),
        # Some edges are held out twice.
        "valid": np.concatenate([absent[:5], edges[order[20:22]]]),
        "test": edges[order[:40]],
    }
    labels = {
        split: rng.integers(0, 6, len(pairs)) if values == "class" else rng.normal(size=len(pairs)).round(3)
        for split, pairs in splits.items()
    }
    files = {
        split: write(tmp_path / f"{split}.txt", splits[split], "names", labels[split].tolist()) for split in splits
    }
    with pytest.raises(InputError, match=r"^5 pairs .*\(vertex-\d+, vertex-\d+\) in train"):
        given(dataset, values=values, **files)
    assert dataset.artifacts("links") == []
    links = given(dataset, values=values, allow_overlap=True, **files)
    assert (links.kind, links.num_classes) == (values, 6 if values == "class" else 0)
    for split, pairs in splits.items():
        np.testing.assert_array_equal(links.pair(split), pairs)
        np.testing.assert_array_equal(links.value(split), labels[split].astype(links.value(split).dtype))
    message = adjacency.toarray()
    for source, target in splits["test"]:
        message[target, source] = 0
        if symmetric:
            message[source, target] = 0
    np.testing.assert_array_equal(dataset.graph(links.message_graph).to_scipy().toarray(), message)
    source, target = splits["train"].T
    np.testing.assert_array_equal(links.weight(), message[target, source])
    assert links.artifact.facts["edges"] == {"train/pair": 258, "valid/pair": 2, "test/pair": 40}
    assert links.artifact.facts["shared"] == 5
    for info in dataset.artifacts():
        check_artifact(dataset, Artifact(info.path))


@pytest.mark.parametrize("ids", ["keep", "compact", "names"])
def test_negatives_of_each_pair_and_pairs_of_other_formats(tmp_path: Path, ids: str) -> None:
    dataset, adjacency = store(tmp_path, ids, symmetric=False)
    edges, rng = edge_list(False), np.random.default_rng(3)
    test, valid, negative = edges[:50], edges[50:70], rng.integers(0, N, (50, 11))

    def known(vertices: np.ndarray) -> np.ndarray:
        texts = np.array([[IDS[ids](vertex) for vertex in row] for row in np.atleast_2d(vertices).tolist()])
        texts = texts.reshape(vertices.shape)
        return texts if ids == "names" else texts.astype(np.int64)

    np.save(tmp_path / "test.npy", known(test))
    np.savez(tmp_path / "negative.npz", targets=known(negative))
    columns = {
        "extra": pa.array(np.zeros(20)),
        "to": pa.array(known(valid[:, 1])),
        "from": pa.array(known(valid[:, 0])),
    }
    pq.write_table(pa.table(columns), tmp_path / "valid.parquet")
    files = {name: str(tmp_path / file) for name, file in (("test", "test.npy"), ("valid", "valid.parquet"))}
    links = given(dataset, test_targets=str(tmp_path / "negative.npz"), columns="from,to", **files)
    np.testing.assert_array_equal(links.pair("test"), test)
    np.testing.assert_array_equal(links.pair("valid"), valid)
    np.testing.assert_array_equal(links.negative("test"), negative)
    expected = (adjacency.toarray()[negative, test[:, :1]] != 0).sum()
    assert links.artifact.facts["edges"]["test/negative"] == expected > 0
    check_artifact(dataset, links.artifact)


def test_pairs_that_are_no_edges_leave_the_graph_as_it_is(tmp_path: Path) -> None:
    dataset, adjacency = store(tmp_path, "keep", symmetric=True)
    absent = pairs_of(adjacency.toarray() == 0, symmetric=True)
    files = {"valid": write(tmp_path / "v", absent[:4], "keep"), "test": write(tmp_path / "t", absent[4:9], "keep")}
    links = given(dataset, **files)
    assert links.message_graph == dataset.graph().artifact.key
    np.testing.assert_array_equal(links.pair("train"), pairs_of(adjacency, symmetric=True))
    before = artifact_digests(dataset)
    given(dataset, **files)
    assert artifact_digests(dataset) == before


@pytest.mark.parametrize(
    ("ids", "change", "message"),
    [
        ("keep", {"test": [[1, 2], [5, 120]]}, r"test.txt, row 1: 120 is not one of the 120 vertices of the graph"),
        ("compact", {"test": [[1, 2], [5, 999]]}, r"1 id not in the graph.* first is '7093' \(.*test.txt, row 1\)"),
        (
            "names",
            {"test": [[1, 2], [999, 5]]},
            r"1 id not in the graph.* first is 'vertex-0999' \(.*test.txt, row 1",
        ),
        ("names", {"test": [[3, 3]]}, "test pairs, row 0: a loop at vertex 3 of the graph"),
        (
            "keep",
            {"test": [[1, 2]], "valid": [[2, 1]]},
            r"1 pair in several splits; one is \(1, 2\) in valid and test",
        ),
        ("keep", {"test": []}, "test.txt"),
    ],
)
def test_pairs_that_cannot_be_links_are_one_error_and_leave_nothing(
    tmp_path: Path, ids: str, change: dict[str, list[list[int]]], message: str
) -> None:
    dataset, _ = store(tmp_path, ids, symmetric=True)
    pairs = {"valid": [[7, 9]], "test": [[8, 4]], **change}
    files = {name: write(tmp_path / f"{name}.txt", np.array(found), ids) for name, found in pairs.items()}
    with pytest.raises(InputError, match=message) as raised:
        given(dataset, **files)
    assert "\n" not in str(raised.value)
    assert dataset.artifacts("links") == []
    assert len(dataset.artifacts("graph")) == 1


@pytest.mark.parametrize("ids", ["names", "compact"])
def test_a_first_line_of_words_that_are_not_vertices_may_be_a_header(tmp_path: Path, ids: str) -> None:
    dataset, adjacency = store(tmp_path, ids, symmetric=True)
    absent = pairs_of(adjacency.toarray() == 0, symmetric=True)
    files = {
        name: write(tmp_path / f"{name}.txt", absent[at : at + 1], ids) for at, name in enumerate(("valid", "test"))
    }
    for file in files.values():
        Path(file).write_text("user item\n" + Path(file).read_text())
    with pytest.raises(InputError, match=r"valid.txt.*--header"):
        given(dataset, **files)
    links = given(dataset, header=True, **files)
    np.testing.assert_array_equal(links.pair("valid"), absent[:1])
    with pytest.raises(InputError, match=r"valid.txt.*user") as raised:
        given(dataset, header=False, **files)
    # Among numbers, the reader of edges names the option in any case.
    assert ids == "compact" or "--header" not in str(raised.value)


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    dataset, _ = store(tmp_path, "keep", symmetric=True)
    with pytest.raises(InputError, match=r"test:.*--test"):
        FileOptions(valid="v")
    with pytest.raises(InputError, match=r"valid and test:.*--valid.*--test"):
        FileOptions(train="t")
    with pytest.raises(InputError, match="values 'colour':"):
        FileOptions(valid="v", test="t", values="colour")
    text = {name: write(tmp_path / name, np.array([[1, 2]]), "keep", ["0.5"]) for name in ("train", "valid", "test")}
    with pytest.raises(InputError, match=r"train, row 0:.*16,777,215,"):
        given(dataset, values="class", allow_overlap=True, **text)
    with pytest.raises(InputError, match="--train"):
        given(dataset, values="class", valid=text["valid"], test=text["test"])
    with pytest.raises(InputError, match=r"line 1:.*`--values`"):
        given(dataset, valid=text["valid"], test=text["test"])
    np.save(tmp_path / "targets.npy", np.zeros((3, 2), np.int64))
    two = {"valid": text["valid"], "test": text["test"], "extra_columns": True, "allow_overlap": True}
    with pytest.raises(InputError, match=r"targets.npy:"):
        given(dataset, test_targets=str(tmp_path / "targets.npy"), **two)


@pytest.mark.parametrize(
    ("symmetric", "case"),
    few_of(
        [False, True],
        [
            ("keep", None, ("valid", "test", "test_negatives")),
            ("names", None, ("train", "valid", "test")),
            ("compact", "number", ("train", "valid", "test")),
        ],
        together=1,
    ),
)
def test_the_planned_tasks_are_those_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, symmetric: bool, case: tuple[str, str | None, Sequence[str]]
) -> None:
    make_small(monkeypatch.setattr)
    ids, values, names = case
    dataset, _ = store(tmp_path, ids, symmetric=symmetric, weighted=ids != "keep")
    graph, cluster, edges = dataset.graph(), StoppingCluster(), edge_list(symmetric)
    rows = {"train": edges[:90], "valid": edges[90:130], "test": edges[130:190], "test_negatives": edges[:7]}
    files: dict[str, Any] = {
        name: write(tmp_path / name, rows[name], ids, [1] * len(rows[name]) if values else None) for name in names
    }
    found = GivenLinks.of(FileOptions(values=values, allow_overlap=True, **files))
    planned = project_given(dataset, graph, found, 1, cluster.memory)
    assert not planned.is_done
    links = given(dataset, cluster, values=values, allow_overlap=True, **files)
    assert planned.tasks == len(cluster.ran)
    assert (planned.key, planned.message_graph) == (links.artifact.key, links.message_graph)
    made = (links.artifact, dataset.graph(links.message_graph).artifact)
    records = [record for artifact in made for record in artifact.records.values()]
    stored = sum(math.prod(each.shape) * np.dtype(each.dtype).itemsize for each in records)
    transposed = 0 if symmetric or values else graph.nnz * 4 * (1 + graph.weighted)
    assert stored <= planned.output_bytes <= 1.5 * (stored + transposed)
    copies = [each for path in (dataset.path / ".mapped").glob("*") for each in path.glob("*.npy")]
    assert planned.copy_bytes >= sum(each.stat().st_size - 128 for each in copies)
    again = project_given(dataset, graph, found, 1, cluster.memory)
    assert (again.is_done, again.tasks, again.output_bytes) == (True, 0, 0)


def test_rows_that_are_planned_with_are_stated_counted_or_estimated(tmp_path: Path) -> None:
    pairs = np.random.default_rng(1).integers(0, 900, (20_000, 2))
    np.save(tmp_path / "pairs.npy", pairs)
    text = write(tmp_path / "pairs.txt", pairs, "keep")
    for location in (str(tmp_path / "pairs.npy"), text):
        assert PairList.open("test/pair", location, None, {}).expected_rows(names=False) == len(pairs)
    several = PairList.open("test/pair", text, None, {})
    several = replace(several, edges=replace(several.edges, range_bytes=20_000))  # type: ignore[type-var]
    assert len(several.ranges()) > 5
    assert several.expected_rows(names=False) == pytest.approx(len(pairs), rel=0.02)
    np.save(tmp_path / "targets.npy", pairs.reshape(-1, 8))
    assert TargetMatrix.open("test/negative", str(tmp_path / "targets.npy")).expected_rows(names=False) == 5000


@pytest.mark.slow
@workers_and_tasks
def test_the_bytes_are_the_same_for_any_number_of_workers_and_after_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, tasks: int
) -> None:
    make_small(monkeypatch.setattr)
    edges = edge_list(True)
    files = {
        "train": edges[:200],
        "valid": edges[200:260],
        "test": edges[260:330],
        "test_negatives": np.roll(edges[:9], 1, axis=0),
    }

    def stored(name: str) -> Dataset:
        return store(tmp_path / name, "names", symmetric=True, weighted=True)[0]

    paths = {
        name: write(tmp_path / f"{name}.txt", pairs, "names", None if "_" in name else [1.5] * len(pairs))
        for name, pairs in files.items()
    }

    def linked(dataset: Dataset, cluster: Any) -> list[str]:
        given(dataset, cluster, values="number", allow_overlap=True, **paths)
        # The keys depend on the name of the file with the edges.
        return sorted(f"{name.partition('/')[0]} {digest}" for name, digest in artifact_digests(dataset).items())

    expected = linked(stored("one"), InProcessCluster(scratch=SMALL_FILES))
    assert len(expected) == 3
    assert linked(stored("workers"), ThreadedCluster(workers, 1 << 30, SMALL_FILES)) == expected
    killed = stored("tasks")
    found, ran = run_in_steps(lambda cluster: linked(killed, cluster), tasks, scratch=SMALL_FILES)
    assert found == expected
    assert len(ran) == len(set(ran)) > 40


def test_a_server_that_does_not_answer_leaves_what_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, _ = store(tmp_path, "keep", symmetric=True)
    files = {name: write(tmp_path / name, np.array([[1, 5], [2, 8]]), "keep") for name in ("valid", "test")}
    read, calls = TextEdges.read, []

    def unreachable(*arguments: Any) -> Any:
        calls.append(arguments)
        # Both files are counted, and then the first one is read again.
        if len(calls) == 3:
            raise UnreachableError("the server cannot be reached")
        return read(*arguments)

    monkeypatch.setattr(TextEdges, "read", unreachable)
    with pytest.raises(UnreachableError, match=r"^the server cannot be reached$"):
        given(dataset, allow_overlap=True, **files)
    (begun,) = dataset.artifacts("links")
    assert begun.state == "incomplete"
    given(dataset, allow_overlap=True, **files)
    # What was counted is not counted again.
    assert len(calls) == 3 + 2
