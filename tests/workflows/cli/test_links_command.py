"""`gnnloom links`, as users call it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

import gnnloom
from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.links.projection import project_links
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.workflows.cli.main import cli
from support.commands import artifact_digests
from support.graphs import random_adjacency, store_graph
from support.in_process import answer
from support.links import pairs_of
from support.ogb_folders import write_ogb_link_folder
from support.stopping import StoppingCluster


@pytest.fixture
def root(tmp_path: Path) -> Path:
    catalog = tmp_path / "catalog"
    adjacency = random_adjacency(300, 1500, 1, symmetric=True)
    store_graph(Catalog(catalog).create("web"), adjacency, symmetric=True)
    return catalog


def run(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["--catalog", str(root), *arguments], catch_exceptions=False)


def test_links_are_planned_made_and_found_again(root: Path) -> None:
    words = ("links", "web", "random", "--valid", "0.1", "--test", "0.2", "--seed", "3")
    plan = answer(root, *words, "--plan")
    assert not plan["is_done"]
    made = answer(root, *words, "--workers", "0")
    assert (made["key"], made["message_graph"]) == (plan["key"], plan["message_graph"])
    assert made["valid"] + made["test"] + made["train"] == plan["pairs"]
    assert (made["test_pool"], made["valid_pool"]) == (made["test"], made["valid"])
    assert (made["test"], made["valid"]) == (plan["pairs"] // 5, plan["pairs"] // 10)
    dataset = Catalog(root)["web"]
    assert made["held_out_entries"] == 2 * (made["valid"] + made["test"])
    assert dataset.graph(made["graph"]).nnz - made["held_out_entries"] == made["message_nnz"]
    before = artifact_digests(dataset)
    assert answer(root, *words, "--workers", "0")["digest"] == made["digest"]
    again = answer(root, *words, "--plan")
    assert (again["is_done"], again["tasks"], again["output_bytes"]) == (True, 0, 0)
    links = gnnloom.draw_links("web", valid=0.1, test=0.2, seed=3, catalog=root, workers=0)
    assert links.artifact.key == made["key"]
    assert artifact_digests(dataset) == before
    np.testing.assert_array_equal(dataset.links().pair("test"), links.pair("test"))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("negatives", [0, 3])
def test_the_planned_tasks_are_those_that_run(tmp_path: Path, negatives: int, symmetric: bool) -> None:
    dataset, cluster = Catalog(tmp_path).create("web"), StoppingCluster()
    options = DrawOptions(disjoint=0.4, negatives=negatives)
    graph = store_graph(dataset, random_adjacency(300, 1500, 1, symmetric=symmetric), symmetric=symmetric)
    planned = project_links(dataset, graph, options, 1, cluster.memory)
    links = draw_links(dataset, graph, options, cluster)
    copies = [each for path in (dataset.path / ".mapped").glob("*") for each in path.glob("*.npy")]
    assert len(copies) == (0 if not negatives else 3 if symmetric else 6)
    # Files have headers.
    assert planned.copy_bytes >= sum(each.stat().st_size - 128 for each in copies)
    made = (links.artifact, dataset.graph(links.message_graph).artifact)
    records = [record for artifact in made for record in artifact.records.values()]
    assert planned.output_bytes >= sum(math.prod(each.shape) * np.dtype(each.dtype).itemsize for each in records)
    rounds = (
        sum(function == "count_keys" for function, _ in cluster.ran) // dataset.graph(planned_graph(dataset)).num_blocks
    )
    # How many rounds there are is not known before; a second one is planned.
    assert 1 <= rounds <= 2
    assert planned.tasks == len(cluster.ran) + (2 - rounds) * 3


def planned_graph(dataset: Any) -> str:
    (ingested,) = dataset.ingested_graphs()
    return str(ingested.key)


def test_wrong_fractions_and_graphs_are_refused_in_one_line(root: Path) -> None:
    for words, message in (
        (("--valid", "0"), "'--valid': 0.0: expected more than 0"),
        (("--test", "1.5"), "'--test': 1.5: expected a number from 0 to below 1"),
    ):
        done = run(root, "links", "web", "random", *words)
        assert (done.exit_code, message in done.output) == (2, True), done.output
    with pytest.raises(InputError, match="expected a sum below 1"):
        run(root, "links", "web", "random", "--valid", "0.6", "--test", "0.5")
    made = answer(root, "links", "web", "random", "--workers", "0")
    with pytest.raises(NotFoundError, match=f"{made['graph']}"):
        run(root, "links", "web", "random", "--graph", made["message_graph"])


def test_pairs_from_files_are_stored_and_found_again(root: Path, tmp_path: Path) -> None:
    dataset = Catalog(root)["web"]
    pairs = pairs_of(dataset.graph().to_scipy(), symmetric=True)
    files = {
        "valid": pairs[:20],
        "test": pairs[20:50],
        "test-negatives": np.stack([pairs[:9, 0], pairs[5:14, 1]], axis=1),
    }
    words = ["links", "web", "file"]
    for name, some in files.items():
        np.savetxt(tmp_path / f"{name}.csv", some, "%d", ",")
        words += [f"--{name}", str(tmp_path / f"{name}.csv")]
    made = answer(root, *words, "--workers", "0")
    assert (made["valid"], made["test"], made["train"]) == (20, 30, len(pairs) - 50)
    assert (made["held_out_entries"], made["shared"], made["classes"], made["negatives"]) == (100, 0, 0, 9 + 20)
    assert (made["test_pool"], made["valid_pool"]) == (9, 20)
    adjacency = dataset.graph(made["graph"]).to_scipy().toarray()
    negative = files["test-negatives"]
    assert made["negatives_that_are_edges"] == (adjacency[negative[:, 1], negative[:, 0]] != 0).sum()
    before = artifact_digests(dataset)
    keywords: dict[str, Any] = {name.replace("-", "_"): tmp_path / f"{name}.csv" for name in files}
    links = gnnloom.read_links("web", catalog=root, workers=0, **keywords)
    assert links.artifact.key == made["key"]
    assert artifact_digests(dataset) == before
    with pytest.raises(InputError, match=r"tset.* test"):
        gnnloom.read_links("web", catalog=root, tset="x")  # type: ignore[call-arg]
    with pytest.raises(InputError, match="--test FILE"):
        run(root, "links", "web", "file", "--valid", "x")


def test_links_of_an_ogb_folder_are_planned_and_made(root: Path, tmp_path: Path) -> None:
    folder = write_ogb_link_folder(tmp_path / "ogbl_x", "time")
    edges = np.loadtxt(folder / "raw" / "edge.csv.gz", dtype=np.int64, delimiter=",")
    pairs = {"train": edges, "valid": np.array([[1, 2], [3, 4]]), "test": np.array([[5, 6]])}
    for split, edge in pairs.items():
        content = {"edge": edge} | ({} if split == "train" else {"edge_neg": edge[:, ::-1].copy()})
        torch.save(
            {name: torch.from_numpy(array) for name, array in content.items()}, folder / f"split/time/{split}.pt"
        )
    given = ("--format", "ogb", "--undirected", "--workers", "0")
    assert run(root, "ingest", "collab", str(folder), *given).exit_code == 0
    words = ("links", "collab", "ogb", str(folder), "--split", "time")
    plan = answer(root, *words, "--plan")
    assert Catalog(root)["collab"].artifacts("links") == []
    made = answer(root, *words, "--workers", "0")
    assert (plan["is_done"], plan["key"], plan["message_graph"]) == (False, made["key"], made["message_graph"])
    assert plan["pairs"] == made["train"] + made["valid"] + made["test"] == len(edges) + 3
    assert answer(root, *words, "--plan")["is_done"]


@pytest.mark.slow
def test_the_latest_edges_are_held_out_of_a_graph_with_times(root: Path, tmp_path: Path) -> None:
    # An edge that occurs twice, in either direction, has its last time.
    lines = [f"{vertex},{vertex + 1},{2000 + vertex}" for vertex in range(40)] + ["3,2,2090", "30,31,1999"]
    (tmp_path / "calls.csv").write_text("\n".join(lines))
    given = ("--times", "--merge", "max", "--undirected", "--workers", "0")
    assert run(root, "ingest", "calls", str(tmp_path / "calls.csv"), *given).exit_code == 0
    words = ("links", "calls", "random", "--by", "time", "--valid", "0.1", "--test", "0.1")
    plan, made = answer(root, *words, "--plan"), answer(root, *words, "--workers", "0")
    assert (made["key"], made["message_graph"]) == (plan["key"], plan["message_graph"])
    links = gnnloom.draw_links("calls", by="time", valid=0.1, test=0.1, catalog=root, workers=0)
    assert links.artifact.key == made["key"]
    assert links.pair("test").tolist() == [[2, 3], [37, 38], [38, 39], [39, 40]]
    assert links.pair("valid").tolist() == [[33, 34], [34, 35], [35, 36], [36, 37]]
    assert not Catalog(root)["calls"].graph(links.message_graph).weighted
    with pytest.raises(InputError, match="by time, but the edges have no times"):
        run(root, "links", "web", "random", "--by", "time", "--workers", "0")
    assert Catalog(root)["web"].artifacts("links") == []


def test_links_outlive_the_other_graph_that_had_their_times(root: Path, tmp_path: Path) -> None:
    lines = [f"{vertex},{vertex + 1},{1 + vertex / 8},{2000 + vertex}" for vertex in range(40)]
    (tmp_path / "calls.csv").write_text("a,b,weight,time\n" + "\n".join(lines))
    given = ("ingest", "calls", str(tmp_path / "calls.csv"), "--undirected", "--workers", "0")
    assert run(root, *given, "--columns", "a,b,weight").exit_code == 0
    dataset = Catalog(root)["calls"]
    weighted = dataset.graph().artifact.key
    assert run(root, *given, "--columns", "a,b,time", "--times", "--merge", "max", "--add").exit_code == 0
    (timed,) = {info.key for info in dataset.artifacts("graph")} - {weighted}
    words = ("links", "calls", "random", "--graph", weighted, "--by", "time", "--valid", "0.1", "--test", "0.1")

    def drawn(times: str) -> tuple[str, str]:
        found = answer(root, *words, "--times", times, "--workers", "0")
        return found["key"], found["message_graph"]

    # The first digits of a key stand for the key.
    made = drawn(timed[:7])
    assert dataset.links().artifact.inputs == {"graph": weighted, "times": timed}
    assert drawn(timed) == made
    assert run(root, "catalog", "rm", "calls", "--artifact", f"graph/{timed}").exit_code == 0
    assert run(root, "catalog", "gc", "calls").exit_code == 0
    before = artifact_digests(dataset)
    for key in (timed, timed[:7]):
        assert answer(root, *words, "--times", key, "--plan")["is_done"]
        assert drawn(key) == made
    # The graph without the held-out edges is made from the links, not from the times.
    dataset.remove_artifact("graph", made[1], force=True)
    assert not answer(root, *words, "--times", timed, "--plan")["is_done"]
    assert drawn(timed) == made
    assert artifact_digests(dataset) == before
    for more in (("--plan",), ("--workers", "0")):
        with pytest.raises(NotFoundError, match=f"has no graph with key {timed}"):
            run(root, *words, "--times", timed, "--seed", "1", *more)
    assert artifact_digests(dataset) == before
    assert len(dataset.artifacts("links")) == 1
