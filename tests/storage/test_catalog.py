"""The catalog opens datasets, finds artifacts by their parameters, and never leaves its root."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import zarr

from gnnloom.storage import Catalog
from gnnloom.storage.errors import BudgetError, FormatError, GnnloomError, InputError, NotFoundError
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.artifact import ArtifactWriter
from support.graphs import random_adjacency, store_graph, store_vertices


@pytest.mark.parametrize("name", ["../x", "..", "/etc", "a/b", "", ".hidden", "-x", "UPPER", "a" * 300, "a\0b", "ü"])
def test_invalid_names_are_refused(catalog: Catalog, name: str) -> None:
    for call in (catalog.dataset, catalog.create, catalog.remove):
        with pytest.raises(InputError, match=f"name {re.escape(repr(name))}"):
            call(name)


def test_a_link_out_of_the_catalog_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    outside = Catalog(tmp_path / "outside")
    outside.create("web")
    catalog.root.mkdir()
    (catalog.root / "web").symlink_to(outside.root / "web")
    with pytest.raises(InputError, match="leads out of the catalog"):
        catalog["web"]


def test_datasets_are_listed_and_removed(catalog: Catalog) -> None:
    assert list(catalog) == []
    catalog.create("web")
    catalog.create("citations")
    catalog.create("web")
    assert list(catalog) == ["citations", "web"]
    assert "web" in catalog
    catalog.remove("web")
    assert list(catalog) == ["citations"]
    with pytest.raises(NotFoundError, match="no such dataset"):
        catalog["web"]


def test_foreign_folders_are_not_datasets(catalog: Catalog) -> None:
    (catalog.root / "files").mkdir(parents=True)
    (catalog.root / "files" / "thesis.txt").write_text("mine")
    zarr.open_group(str(catalog.root / "foreign"), mode="w")
    for name in ("files", "foreign"):
        with pytest.raises(FormatError, match="not a gnnloom dataset"):
            catalog[name]
    with pytest.raises(GnnloomError, match="not a dataset"):
        catalog.create("files")
    assert (catalog.root / "files" / "thesis.txt").exists()


def test_an_error_to_make_a_catalog_suggests_another_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"file/catalog/web: "):
        Catalog(tmp_path / "file" / "catalog").create("web")


def test_a_dataset_of_a_newer_format_is_refused(catalog: Catalog) -> None:
    dataset = catalog.create("web")
    zarr.open_group(str(dataset.path), mode="a").attrs["format_version"] = 99
    with pytest.raises(FormatError, match="format 99 is newer"):
        catalog["web"]


def test_artifacts_are_found_by_their_parameters(catalog: Catalog) -> None:
    dataset = catalog.create("web")
    for parts, seed in ((4, 0), (8, 0), (8, 1)):
        parameters = {"parts": parts, "seed": seed, "method": "block"}
        with ArtifactWriter.begin(dataset.path, "partition", parameters, {}) as writer:
            with writer.task("part/0") as output:
                output.add(write_array(writer.path, "part", np.zeros(3, np.int32), ("vertex",)))
            writer.commit(["part/0"], {"vertex": 3}, {"quality": {}})
    assert dataset.partition(4).num_parts == 4
    assert dataset.partition(8, seed=1).artifact.parameters["seed"] == 1
    with pytest.raises(InputError, match=r"parts=8.*seed=0.*seed=1"):
        dataset.partition(8)
    with pytest.raises(NotFoundError, match=r"parts=5, method=block.*parts=4") as caught:
        dataset.partition(5, method="block")
    assert str(caught.value).endswith("; make one with `gnnloom partition web --parts 5 --method block`")
    key = dataset.partition(8, seed=1).artifact.key
    assert dataset.partition(key=key[:10]).artifact.key == key


def test_an_error_lists_a_few_artifacts_by_what_users_know_them_by(catalog: Catalog) -> None:
    dataset = catalog.create("web")
    for parts in range(2, 10):
        parameters = {"parts": parts, "method": "auto", "memory": 1 << 30, "weights": "nonzeros", "imbalance": 0.01}
        with ArtifactWriter.begin(dataset.path, "partition", parameters, {}) as writer:
            with writer.task("part/0") as output:
                output.add(write_array(writer.path, "part", np.zeros(3, np.int32), ("vertex",)))
            writer.commit(["part/0"], {"vertex": 3}, {"quality": {}})
    with pytest.raises(NotFoundError, match=r"there are: ") as caught:
        dataset.partition(100)
    assert str(caught.value).count("method=auto") == 5
    assert "memory" not in str(caught.value)
    assert "and 3 more, listed by `gnnloom catalog show web`" in str(caught.value)
    with pytest.raises(NotFoundError, match=r"web .*`gnnloom features web --feature FILE`"):
        dataset.vertices()


def test_an_incomplete_artifact_is_listed_but_not_found(catalog: Catalog) -> None:
    dataset = catalog.create("web")
    with ArtifactWriter.begin(dataset.path, "graph", {"undirected": True}, {}):
        pass
    (info,) = dataset.artifacts()
    assert (info.kind, info.state, info.parameters) == ("graph", "incomplete", {"undirected": True})
    with pytest.raises(NotFoundError, match="begun and not finished"):
        dataset.graph()


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_graph_reads_as_a_scipy_matrix(catalog: Catalog, symmetric: bool) -> None:
    adjacency = random_adjacency(200, 900, 1, symmetric=symmetric)
    store_graph(catalog.create("web"), adjacency, symmetric=symmetric, num_blocks=4)
    graph = catalog["web"].graph()
    difference = graph.to_scipy() - scipy.sparse.csr_array(adjacency)
    assert abs(difference).sum() == 0
    np.testing.assert_array_equal(graph.degree(10, 50), np.diff(adjacency.indptr)[10:50])
    np.testing.assert_array_equal(graph.original_id(3, 6), [3, 4, 5])
    with pytest.raises(BudgetError, match="more than max_nnz=10"):
        graph.to_scipy(max_nnz=10)


def test_zarr_users_see_groups_attributes_and_names(catalog: Catalog) -> None:
    store_graph(catalog.create("web"), random_adjacency(50, 200, 0, symmetric=True), symmetric=True, num_blocks=2)
    key = catalog["web"].graph().artifact.key
    root = zarr.open_group(str(catalog.root / "web"), mode="r")
    block = root[f"graph/{key}/block/00001"]
    assert isinstance(block, zarr.Group)
    indptr, indices = block["indptr"], block["indices"]
    assert isinstance(indptr, zarr.Array)
    assert isinstance(indices, zarr.Array)
    assert block.attrs["encoding-type"] == "csr_matrix"
    assert block.attrs["row_offset"] == 25
    assert block.attrs["nnz"] == indices.shape[0]
    assert indptr.metadata.to_dict()["dimension_names"] == ("row+1",)


def test_vertices_read_back(catalog: Catalog) -> None:
    feature = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    store_vertices(catalog.create("web"), feature, np.arange(20) % 5 - 1, np.arange(20) % 4)
    vertices = catalog["web"].vertices()
    np.testing.assert_array_equal(vertices.feature(5, 9), feature[5:9])
    assert vertices.label().min() == -1
    assert (vertices.num_features, vertices.num_classes) == (3, 4)
    assert vertices.has_split


def test_removing_an_artifact_leaves_the_others(catalog: Catalog) -> None:
    dataset = catalog.create("web")
    store_vertices(dataset, np.ones((20, 2)), None, None)
    graph = store_graph(dataset, random_adjacency(20, 50, 0, symmetric=True), symmetric=True)
    dataset.remove_artifact("graph", graph.artifact.key)
    assert [info.kind for info in dataset.artifacts()] == ["vertices"]
    with pytest.raises(NotFoundError):
        dataset.remove_artifact("graph", graph.artifact.key)
    with pytest.raises(InputError):
        dataset.remove_artifact("..", "web")


def test_a_moved_catalog_still_opens(catalog: Catalog, tmp_path: Path) -> None:
    store_graph(catalog.create("web"), random_adjacency(20, 50, 0, symmetric=True), symmetric=True)
    shutil.move(catalog.root, tmp_path / "elsewhere")
    assert Catalog(tmp_path / "elsewhere")["web"].graph().num_vertices == 20


def test_an_error_is_also_the_matching_builtin(catalog: Catalog) -> None:
    with pytest.raises(LookupError) as caught:
        catalog["absent"]
    assert caught.value.exit_code == 3  # type: ignore[attr-defined]
    assert not str(caught.value).startswith("'")


def test_a_name_like_that_of_a_dataset_is_suggested(catalog: Catalog) -> None:
    catalog.create("papers")
    with pytest.raises(NotFoundError, match=r"papers.* `gnnloom catalog ls`"):
        catalog["paper"]
    with pytest.raises(NotFoundError, match="`gnnloom catalog ls`"):
        catalog["web"]


def test_vertex_data_to_choose_from_are_named_by_their_files(catalog: Catalog) -> None:
    dataset = catalog.create("web")
    for sources in ({"feature": "a.npy", "label": "l.npy"}, {"feature": "b.npy"}):
        files = {name: {"fingerprint": file, "name": file, "size": 1} for name, file in sources.items()}
        parameters = {"source": {"format": "numpy", "arrays": [None] * len(files), **files}}
        with ArtifactWriter.begin(dataset.path, "vertices", parameters, {}) as writer:
            writer.commit([], {}, {})
    with pytest.raises(InputError, match=r"\(feature=a.npy, label=l.npy\)") as raised:
        dataset.vertices()
    assert "(feature=b.npy, label=none)" in str(raised.value)


def test_a_stored_text_in_an_error_stays_on_its_line(tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    metadata = {"zarr_format": 3, "node_type": "a\nb" + "c" * 10_000, "attributes": {}}
    (tmp_path / "odd" / "zarr.json").write_text(json.dumps(metadata))
    with pytest.raises(FormatError) as raised:
        Catalog(tmp_path).dataset("odd")
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 1000
