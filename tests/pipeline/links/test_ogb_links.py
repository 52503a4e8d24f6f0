"""OGB's folders for link prediction: graph, pairs and negatives, as tensors or as pickled NumPy arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.links.given.given_projection import project_given
from gnnloom.pipeline.links.given.given_stage import GivenLinks, store_links
from gnnloom.pipeline.sources.format import bundled_vertices, open_edges
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import BudgetError, InputError, NotFoundError
from gnnloom.storage.format.artifact import Artifact
from support.ogb_folders import write_ogb_link_folder
from support.stopping import StoppingCluster

#: How files are written: tensors, NumPy arrays, and NumPy arrays by an old torch.
FORMS = ("tensors", "arrays", "old")


def save(form: str, path: Path, content: dict[str, Any]) -> None:
    found = {name: torch.from_numpy(value) for name, value in content.items()} if form == "tensors" else content
    torch.save(found, path, _use_new_zipfile_serialization=form != "old")


def stored(root: Path, folder: Path, *, undirected: bool) -> Dataset:
    dataset = Catalog(root / "catalog").create("links")
    assert bundled_vertices("ogb", [str(folder)]) is None
    source = open_edges("ogb", [str(folder)], undirected=undirected)
    ingest_graph(dataset, source, IngestOptions(undirected=undirected), InProcessCluster())
    return dataset


def planned_and_stored(dataset: Dataset, folder: Path) -> Links:
    """Store the links of a folder, for which as many tasks run as are planned."""
    graph, given, cluster = dataset.graph(), GivenLinks.of_ogb(str(folder), None), StoppingCluster()
    planned = project_given(dataset, graph, given, 1, cluster.memory)
    assert not planned.is_done
    links = store_links(dataset, graph, given, cluster)
    assert planned.tasks == len(cluster.ran)
    assert (planned.key, planned.message_graph) == (links.artifact.key, links.message_graph)
    assert planned.pairs == sum(links.num_pairs.values())
    again = project_given(dataset, graph, given, 1, cluster.memory)
    assert (again.is_done, again.tasks, again.output_bytes) == (True, 0, 0)
    return links


@pytest.mark.parametrize("form", FORMS)
def test_pairs_and_pools_of_negatives(tmp_path: Path, form: str) -> None:
    rng = np.random.default_rng(1)
    folder = write_ogb_link_folder(tmp_path / "ogbl_x", "time")
    edges = np.loadtxt(folder / "raw" / "edge.csv.gz", dtype=np.int64, delimiter=",")
    given: dict[str, dict[str, np.ndarray]] = {"train": {"edge": edges, "weight": np.ones(len(edges))}}
    for split in ("valid", "test"):
        pairs = np.stack([rng.permutation(30)[:2] for _ in range(11)])
        given[split] = {"edge": pairs, "edge_neg": rng.integers(0, 30, (17, 2)), "year": np.full(11, 2018)}
    # A pair that is an edge stays one.
    given["test"]["edge"][0] = edges[0]
    for split, content in given.items():
        save(form, folder / "split" / "time" / f"{split}.pt", content)
    dataset = stored(tmp_path, folder, undirected=True)
    graph = dataset.graph()
    links = planned_and_stored(dataset, folder)
    assert links.message_graph == graph.artifact.key
    for split, content in given.items():
        np.testing.assert_array_equal(links.pair(split), np.sort(content["edge"], axis=1))
        assert links.num_pooled(split) == (0 if split == "train" else 17)
        if split != "train":
            np.testing.assert_array_equal(links.pool(split), content["edge_neg"])
    np.testing.assert_array_equal(links.weight(), np.ones(len(edges)))
    assert links.artifact.facts["shared"] >= 1
    check_artifact(dataset, Artifact(links.artifact.path))
    again = store_links(dataset, graph, GivenLinks.of_ogb(f"{folder}/", "time"), InProcessCluster())
    assert again.artifact.manifest == links.artifact.manifest


@pytest.mark.parametrize("form", FORMS)
def test_negatives_of_each_pair(tmp_path: Path, form: str) -> None:
    rng = np.random.default_rng(1)
    folder = write_ogb_link_folder(tmp_path / "ogbl_x", "time")
    edges = np.loadtxt(folder / "raw" / "edge.csv.gz", dtype=np.int64, delimiter=",")
    given = {"train": {"source_node": edges[:, 0].copy(), "target_node": edges[:, 1].copy()}}
    for split in ("valid", "test"):
        source = rng.integers(0, 15, 8)
        target = 15 + rng.integers(0, 15, 8)
        given[split] = {"source_node": source, "target_node": target, "target_node_neg": rng.integers(0, 30, (8, 5))}
    for split, content in given.items():
        save(form, folder / "split" / "time" / f"{split}.pt", content)
    dataset = stored(tmp_path, folder, undirected=False)
    links = planned_and_stored(dataset, folder)
    for split, content in given.items():
        np.testing.assert_array_equal(
            links.pair(split), np.stack([content["source_node"], content["target_node"]], axis=1)
        )
    for split in ("valid", "test"):
        np.testing.assert_array_equal(links.negative(split), given[split]["target_node_neg"])
    check_artifact(dataset, links.artifact)


def test_wrong_folders_are_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_ogb_link_folder(tmp_path / "ogbl_x", "time")
    (folder / "split" / "time" / "train.pt").unlink()
    with pytest.raises(NotFoundError, match=r"split:.*train.pt"):
        GivenLinks.of_ogb(str(folder), None)
    with pytest.raises(NotFoundError, match=r"there is no such folder"):
        GivenLinks.of_ogb(str(tmp_path / "nowhere"), None)
    typed = {"head": np.arange(3), "relation": np.arange(3), "tail": np.arange(3)}
    for split in ("train", "valid", "test"):
        save("arrays", folder / "split" / "time" / f"{split}.pt", typed)
    with pytest.raises(InputError, match=r"train.pt:"):
        GivenLinks.of_ogb(str(folder), None)
    for split in ("train", "valid", "test"):
        save("arrays", folder / "split" / "time" / f"{split}.pt", {"edge": np.array([[1, 40]])})
    dataset = stored(tmp_path, folder, undirected=True)
    with pytest.raises(InputError, match=r"train.pt, row 0:.*40.*30"):
        store_links(dataset, dataset.graph(), GivenLinks.of_ogb(str(folder), None), InProcessCluster())
    # What can only be read as a whole has to fit.
    monkeypatch.setattr("gnnloom.pipeline.links.given.given_ids.working_memory", lambda _: 100)
    with pytest.raises(BudgetError, match="the arrays of a file can only be read together"):
        store_links(dataset, dataset.graph(), GivenLinks.of_ogb(str(folder), None), InProcessCluster())
    torch.save(
        {"edge": torch.zeros(2, 2)}, folder / "split" / "time" / "train.pt", _use_new_zipfile_serialization=False
    )
    with pytest.raises(InputError, match=r"tensors of torch before 1.6"):
        GivenLinks.of_ogb(str(folder), None)
    (folder / "split" / "time" / "train.pt").write_bytes(b"\x80\x02}.")
    with pytest.raises(InputError, match=r"train.pt"):
        GivenLinks.of_ogb(str(folder), None)
