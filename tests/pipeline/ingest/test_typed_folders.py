"""Folders of OGB with several types of vertices become the graph that their files have."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import gnnloom
from gnnloom.pipeline.ingest.typed.folders.layouts import described_tables
from gnnloom.storage import TypedGraph
from gnnloom.storage.errors import GnnloomError
from gnnloom.workflows.cli.main import cli
from support.ogb_folders import write_ogb_typed_folder


def _check(graph: TypedGraph, edges: dict[tuple[str, str, str], np.ndarray]) -> None:
    assert {each.name: each.count for each in graph.types} == {"author": 12, "institution": 4, "paper": 9}
    assert all(graph.original_id(each.name).tolist() == list(range(each.count)) for each in graph.types)
    called = {(each.source.name, each.facts.get("word", each.name), each.target.name): each for each in graph.relations}
    assert called.keys() == {(head, word.replace("-", "_"), tail) for head, word, tail in edges}
    for (head, word, tail), ends in edges.items():
        found = called[head, word.replace("-", "_"), tail].to_scipy().toarray()
        wanted = np.zeros(found.shape)
        wanted[ends[:, 1], ends[:, 0]] = 1
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
def test_a_folder_of_ogb_with_several_types(tmp_path: Path) -> None:
    edges = write_ogb_typed_folder(tmp_path / "mag")
    dataset = gnnloom.ingest("mag", tmp_path / "mag", workers=0, catalog=tmp_path / "catalog")
    _check(dataset.typed_graph(), edges)
    assert {finding.problem for finding in dataset.verify()} == {None}
    runner, catalog = CliRunner(), ["--catalog", str(tmp_path / "other")]
    done = runner.invoke(cli, [*catalog, "ingest", "mag", str(tmp_path / "mag"), "--format", "ogb", "--workers", "0"])
    assert done.exit_code == 0, done.output
    assert "affiliated_with" in runner.invoke(cli, ["look", str(tmp_path / "mag")]).output


def test_features_labels_and_split_of_a_type_of_ogb_are_read(tmp_path: Path) -> None:
    write_ogb_typed_folder(tmp_path / "mag")
    dataset = gnnloom.ingest("mag", tmp_path / "mag", workers=0, catalog=tmp_path / "catalog")
    graph = dataset.typed_graph()
    stored = dataset.vertices_of_types(graph.artifact.key, {})
    with gzip.open(tmp_path / "mag" / "raw" / "node-feat" / "paper" / "node-feat.csv.gz", "rt") as file:
        features = np.loadtxt(file, np.float32, delimiter=",")
    assert list(stored) == ["paper"]
    np.testing.assert_array_equal(stored["paper"].feature(), features)
    np.testing.assert_array_equal(stored["paper"].label(), np.arange(9) % 4)
    np.testing.assert_array_equal(stored["paper"].split(), [1, 2, 3, 1, 2, 3, 0, 0, 0])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("split/time/paper/valid", "1\n9\n", r"valid\.csv\.gz, line 2: expected a vertex from 0 to 8"),
        ("split/time/paper/valid", "1\n3\n", r"valid\.csv\.gz, line 2: .*already in the train split"),
        ("raw/node-label/paper/node-label", "1\n2\n", "different numbers of rows"),
        ("split/other/paper/train", "1\n", "several splits of type paper"),
    ],
)
def test_vertex_data_of_ogb_that_do_not_fit_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    write_ogb_typed_folder(tmp_path / "mag")
    (tmp_path / "mag" / f"{name}.csv.gz").parent.mkdir(parents=True, exist_ok=True)
    _rewrite(tmp_path / "mag" / f"{name}.csv.gz", text)
    with pytest.raises(GnnloomError, match=message):
        gnnloom.ingest("mag", tmp_path / "mag", workers=0, catalog=tmp_path / "catalog")


def _rewrite(file: Path, text: str) -> None:
    file.write_bytes(gzip.compress(text.encode()))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("triplet-type-list", "author,writes,book\n", r"triplet-type-list\.csv\.gz, line 1: type 'book'.*author"),
        ("triplet-type-list", "author,writes\n", r"triplet-type-list\.csv\.gz, line 1: expected"),
        ("triplet-type-list", "author,../..,paper\n", r"triplet-type-list\.csv\.gz, line 1: .*path"),
        ("triplet-type-list", "author,writes,paper\n" * 2, r"triplet-type-list\.csv\.gz, line 2: .*twice"),
        ("triplet-type-list", "author,reads,paper\n", r"author___reads___paper/edge\.csv\.gz: there is no such file"),
        ("triplet-type-list", f"author,{'n' * 300},paper\n", r"triplet-type-list\.csv\.gz, line 1: .*255 bytes"),
        ("triplet-type-list", "author,a\0b,paper\n", r"triplet-type-list\.csv\.gz"),
        ("triplet-type-list", "\n", "expected a line for each relation"),
        ("num-node-dict", "author,paper\n1\n", r"num-node-dict\.csv\.gz: expected a line of types"),
        ("num-node-dict", "author,institution,paper\n12,4,²\n", r"num-node-dict\.csv\.gz: expected"),
        ("num-node-dict", "author,institution,paper\n12,4,2\n", r"edge\.csv\.gz, line \d+: .*type paper"),
        ("relations/author___writes___paper/num-edge-list", "31\n", r"edge\.csv\.gz: .*31 rows, found 30"),
        ("relations/author___writes___paper/edge", "0,1\n2,3,4\n", r"edge\.csv\.gz, line 2: .*more columns"),
    ],
)
def test_folders_that_contradict_themselves_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    write_ogb_typed_folder(tmp_path / "mag")
    _rewrite(tmp_path / "mag" / "raw" / f"{name}.csv.gz", text)
    with pytest.raises(GnnloomError, match=message):
        gnnloom.ingest("mag", tmp_path / "mag", workers=0, catalog=tmp_path / "catalog")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["object", "file", "dict", "collated"])
def test_a_hetero_data_goes_there_and_back(tmp_path: Path, form: str) -> None:
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    generator = torch.Generator().manual_seed(0)
    data["user"].num_nodes, data["lonely one"].num_nodes = 7, 3
    data["item"].x, data["item"].y = torch.rand(5, 2), torch.tensor([0, 1, -1, 1, 0])
    for at, name in enumerate(("train_mask", "val_mask", "test_mask")):
        data["item"][name] = torch.arange(5) % 4 == at
    for triplet in (("user", "to", "item"), ("item", "to", "user"), ("user", "follows", "user")):
        sizes = [data[triplet[end]].num_nodes for end in (0, 2)]
        ends = [torch.randint(size - 1, (12,), generator=generator) for size in sizes]
        data[triplet].edge_index = torch.stack(ends)
        data[triplet].edge_attr = torch.rand(12, 2, generator=generator).to(
            torch.float16 if "to" in triplet else torch.float32
        )
        data[triplet].edge_label = torch.randint(4, (12,), generator=generator)
        data[triplet].time = torch.randint(1000, (12,), generator=generator)
    # A single number is sorted with its edge.
    data["user", "rates", "item"].edge_index = torch.tensor([[4, 0, 2], [1, 3, 0]])
    data["user", "rates", "item"].edge_weight = torch.tensor([0.5, 2.0, 1.0])
    # Views of other tensors.
    data["user", "rev_follows", "user"].edge_index = data["user", "follows", "user"].edge_index.flip(0)
    data["item", "owned", "user"].edge_index = torch.tensor([[0, 1], [3, 4], [2, 0]]).T
    source: Any = data
    if form != "object":
        source = tmp_path / "data.pt"
        torch.save({"file": data, "dict": data.to_dict(), "collated": (data, None)}[form], source)
    dataset = gnnloom.ingest("g", source, merge="keep", workers=0, catalog=tmp_path / "catalog")
    found = dataset.to_pyg()
    assert {name: found[name].num_nodes for name in found.node_types} == {"item": 5, "lonely_one": 3, "user": 7}
    for name in ("x", "y", "train_mask", "val_mask", "test_mask"):
        np.testing.assert_array_equal(found["item"][name].numpy(), data["item"][name].numpy())
    names = {
        ("user", "user_to_item", "item"): ("user", "to", "item"),
        ("item", "item_to_user", "user"): ("item", "to", "user"),
        ("user", "follows", "user"): ("user", "follows", "user"),
        ("user", "rates", "item"): ("user", "rates", "item"),
        ("item", "owned", "user"): ("item", "owned", "user"),
    }
    assert set(found.edge_types) == set(names)
    for own, given in names.items():
        index = data[given].edge_index.numpy()
        order = np.lexsort((np.arange(index.shape[1]), index[0], index[1]))
        np.testing.assert_array_equal(found[own].edge_index.numpy(), index[:, order])
        for value in {"edge_attr", "edge_label", "time", "edge_weight"} & set(data[given]):
            np.testing.assert_array_equal(found[own][value].numpy(), data[given][value].numpy()[order])
    assert not [each for each in dataset.verify() if each.problem]


def test_a_file_with_a_hetero_data_is_shown_and_runs_no_code(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    ends = torch.tensor([[0, 1], [1, 2]])
    content: dict[Any, Any] = {"a": {"num_nodes": 3}, ("a", "to", "a"): {"edge_index": ends, "unread": ends}}
    torch.save(content, tmp_path / "a.pt")
    found = described_tables(str(tmp_path / "a.pt"), None)
    assert found is not None
    opened: Any = found.relations[0][1].opened
    # No tensor is in memory.
    assert all(array.is_mapped for array in opened.stored_arrays())
    shown = repr(gnnloom.look(str(tmp_path / "a.pt")))
    assert "relation to, from a to a" in shown
    assert "unread" in shown
    for changed, message in (
        ({"b": {"x": tmp_path}}, "pathlib"),
        ({("a", "to", "b", "c"): {}}, "keys"),
        ({("a", "to", "b"): ends}, "'to', 'b'"),
        ({"a": {}}, "num_nodes"),
        ({"a": {"num_nodes": -1}}, "num_nodes"),
        ({("a", "to", "a"): {"edge_index": ends, "edge_label": torch.rand(2)}}, "edge_label"),
        ({("a", "to", "a"): {"edge_index": ends, "time": torch.rand(2, 2)}}, "time"),
        ({("a", "to", "a"): {"edge_index": ends.float()}}, "edge_index"),
    ):
        torch.save(content | changed, tmp_path / "b.pt")
        with pytest.raises(GnnloomError, match=message):
            gnnloom.ingest("g", tmp_path / "b.pt", workers=0, catalog=tmp_path / "catalog")


def test_a_hetero_data_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    data["a"].num_nodes = 3
    data["a", "to", "a"].edge_index = torch.tensor([[0, 1], [1, 3]])
    how: Any = {"workers": 0, "catalog": tmp_path / "catalog", "merge": "keep"}
    with pytest.raises(GnnloomError, match="'3'"):
        gnnloom.ingest("g", data, **how)
    data["a", "to", "a"].edge_index = torch.tensor([[0, 1], [1, 2]])
    data["a", "to", "a"].edge_attr = torch.rand(3, 1)
    with pytest.raises(GnnloomError, match=r"'a', 'to', 'a'.*edge_attr of shape \(3, 1\)"):
        gnnloom.ingest("g", data, **how)
    del data["a", "to", "a"].edge_attr
    data["a", "to", "a"].edge_index = torch.tensor([0, 1])
    with pytest.raises(GnnloomError, match="edge_index of shape"):
        gnnloom.ingest("g", data, **how)
