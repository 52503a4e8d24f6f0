"""Datasets that describe themselves, in several layouts, become the graph that was written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnloom
from gnnloom.pipeline.ingest.typed.folders.layouts import described_tables
from gnnloom.storage.errors import GnnloomError
from support.typed_folders import (
    LAYOUTS,
    SIZES,
    paper_features,
    typed_edges,
    write_arrays,
    write_chunked,
    write_graphbolt,
)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_graph_is_read_as_it_was_written(tmp_path: Path, layout: str) -> None:
    location = LAYOUTS[layout](tmp_path / layout)
    dataset = gnnloom.ingest("mag", location, workers=0, catalog=tmp_path / "catalog")
    graph = dataset.typed_graph()
    assert {each.name: each.count for each in graph.types} == SIZES
    assert all(sorted(graph.original_id(name)) == list(range(count)) for name, count in SIZES.items())
    for (source, name, target), edges in typed_edges().items():
        relation = graph.relation(name)
        assert (relation.source.name, relation.target.name) == (source, target)
        found = relation.to_scipy().tocoo()
        ends = graph.original_id(source)[found.col], graph.original_id(target)[found.row]
        assert set(zip(*(each.tolist() for each in ends), strict=True)) == set(map(tuple, edges.tolist()))
    stored = dataset.vertices_of_types(graph.artifact.key, {})
    if layout == "arrays-without-headers":
        assert not stored
    elif layout == "gconstruct":
        expected = np.stack([np.arange(9) + 2000, np.arange(9) / 2], 1)
        np.testing.assert_array_equal(stored["paper"].feature(), expected[graph.original_id("paper")])
        np.testing.assert_array_equal(stored["paper"].label(), np.arange(9)[graph.original_id("paper")] % 3)
    else:
        np.testing.assert_array_equal(stored["paper"].feature(), paper_features()[graph.original_id("paper")])


def test_labels_and_split_of_mag240m_are_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    folder = write_arrays(tmp_path / "mag")
    labels = np.array([3, np.nan, 0, 1, 2, np.nan, 3, 0, np.nan], np.float32)
    np.save(folder / "processed" / "paper" / "node_label.npy", labels)
    parts = {"train": [0, 2], "valid": [3], "test-dev": [4], "test-challenge": [6], "test-whole": [4, 6]}
    torch.save({name: np.array(part) for name, part in parts.items()}, folder / "split_dict.pt", pickle_protocol=4)
    dataset = gnnloom.ingest("mag", folder, workers=0, catalog=tmp_path / "catalog")
    graph = dataset.typed_graph()
    ids, stored = graph.original_id("paper"), dataset.vertices_of_types(graph.artifact.key, {})["paper"]
    np.testing.assert_array_equal(stored.label(), np.where(np.isnan(labels), -1, labels)[ids])
    np.testing.assert_array_equal(stored.split(), np.array([1, 0, 1, 2, 3, 0, 3, 0, 0])[ids])


@pytest.mark.parametrize(
    "parts",
    [{"train": [0], "valid": [1], "test": [9]}, {"train": [0], "valid": [0], "test": [1]}, {"train": [0], "test": [1]}],
)
def test_splits_that_torch_saved_are_checked(tmp_path: Path, parts: dict[str, list[int]]) -> None:
    torch = pytest.importorskip("torch")
    folder = write_arrays(tmp_path / "mag")
    np.save(folder / "processed" / "paper" / "node_label.npy", np.zeros(9, np.int64))
    torch.save({name: torch.tensor(part) for name, part in parts.items()}, folder / "split_dict.pt")
    with pytest.raises(GnnloomError, match=r"split_dict\.pt"):
        gnnloom.ingest("mag", folder, workers=0, catalog=tmp_path / "catalog")


def _edit(path: Path, change: Callable[[Any], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("edges"), r"metadata\.json: expected a value for 'edges'"),
        (lambda c: c["edges"].popitem(), r"edges: expected a value for 'author:affiliated_with:institution'"),
        (lambda c: c["edge_type"].append("a:b"), r"num_edges_per_chunk: expected numbers of 4 relations"),
        (lambda c: c["node_type"].pop(), r"num_nodes_per_chunk: expected numbers of 2 types"),
        (lambda c: c["num_nodes_per_chunk"][0].append(-1), r"num_nodes_per_chunk\[0\]\[2\]: expected a number of 0"),
        (lambda c: c["num_nodes_per_chunk"][0].append(True), r"num_nodes_per_chunk\[0\]\[2\]: expected a number"),
        (lambda c: c["num_nodes_per_chunk"].__setitem__(2, [2]), r"type paper"),
        (lambda c: c["num_edges_per_chunk"][0].__setitem__(0, 11), r"writes-0\.txt.*11 rows, found 10"),
        (lambda c: (c["edge_type"].append("a:b"), c.pop("num_edges_per_chunk")), r"edges: expected a value for 'a:b'"),
        (lambda c: c["num_edges_per_chunk"][0].pop(), r"num_edges_per_chunk\[0\]: expected numbers of 2 chunks"),
        (lambda c: _first(c)["data"].append("../../secret.txt"), r"data\[2\]: expected a file below"),
        (lambda c: _first(c)["data"].append("/etc/passwd"), r"data\[2\]: expected a file below"),
        (lambda c: _first(c)["data"].append("gone.txt"), r"data\[2\]: the file .*gone\.txt does not exist"),
        (lambda c: _first(c)["data"].append(7), r"data\[2\]: expected text, found '7'"),
        (lambda c: _first(c)["format"].__setitem__("name", "hdf5"), r"format\.name: expected csv, parquet or numpy"),
    ],
)
def test_descriptions_that_are_wrong_say_where(tmp_path: Path, change: Callable[[Any], object], message: str) -> None:
    folder = write_chunked(tmp_path / "mag")
    _edit(folder / "metadata.json", change)
    with pytest.raises(GnnloomError, match=message):
        gnnloom.ingest("mag", folder, workers=0, catalog=tmp_path / "catalog")


def _first(content: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(iter(content["edges"].values()))
    return found


@pytest.mark.parametrize("layout", ["graphbolt", "chunked", "gconstruct"])
def test_types_that_a_description_does_not_list_are_refused(tmp_path: Path, layout: str) -> None:
    location = LAYOUTS[layout](tmp_path / layout)
    (file,) = [location] if location.is_file() else location.glob("metadata.*")
    text = file.read_text()
    for before, after in (("author:writes:paper", "authr:writes:paper"), ('"author", "writes"', '"authr", "writes"')):
        text = text.replace(before, after)
    assert text != file.read_text()
    file.write_text(text)
    with pytest.raises(GnnloomError, match=rf"{file.name}.*did you mean author"):
        gnnloom.ingest("mag", location, workers=0, catalog=tmp_path / "catalog")


@pytest.mark.parametrize("text", ["graph: [", "a: \x00", "- b\nc: d"])
def test_a_yaml_that_is_damaged_gets_an_error_of_one_line(tmp_path: Path, text: str) -> None:
    folder = write_graphbolt(tmp_path / "mag")
    (folder / "metadata.yaml").write_text(text)
    with pytest.raises(GnnloomError, match=r"metadata\.yaml: expected YAML") as caught:
        described_tables(str(folder), None)
    assert "\n" not in str(caught.value)


def test_a_yaml_that_names_code_runs_none(tmp_path: Path) -> None:
    folder = write_graphbolt(tmp_path / "mag")
    (folder / "metadata.yaml").write_text(f"graph: !!python/object/apply:pathlib.Path.touch [{tmp_path / 'ran'}]")
    with pytest.raises(GnnloomError, match=r"metadata\.yaml: expected YAML"):
        described_tables(str(folder), None)
    assert not (tmp_path / "ran").exists()


def test_other_files_and_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text('{"name": "something else"}')
    (tmp_path / "nodes.json").write_text('{"nodes": {"a": 1}, "edges": []}')
    for location in (tmp_path, tmp_path / "metadata.json", tmp_path / "nodes.json", tmp_path / "nothing"):
        assert described_tables(str(location), None) is None
    assert described_tables("https://example.org/metadata.json", None) is None
