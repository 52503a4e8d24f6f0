"""Zarr readers see everything that is complete in a dataset, at every level, and warn about nothing."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import zarr

from gnnloom.storage import Catalog
from gnnloom.storage.disk.files import read_json
from gnnloom.storage.errors import FormatError
from gnnloom.storage.format import listing
from gnnloom.storage.format.listing import are_lists_current, refresh_list
from support.small_catalogs import begin_partition, store_run, store_small_dataset


def groups_below(folder: Path) -> list[Path]:
    """All folders that hold groups or arrays, without the chunks of arrays."""
    found = [path for path in folder.rglob("*") if path.is_dir() and path.name[0] != "."]
    return [path for path in found if not {"c", "sections"} & set(path.parts)]


def test_zarr_and_xarray_walk_a_dataset_without_warnings(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    begin_partition(dataset)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        root = zarr.open_group(str(dataset.path), mode="r")
        tree = str(root.tree())
        for folder in groups_below(dataset.path):
            if not (folder / ".work").exists() and folder.parent.name != ".work":
                node = zarr.open(str(folder), mode="r")
                assert not isinstance(node, zarr.Group) or dict(node.members(max_depth=None)) is not None
    graph = dataset.graph().artifact
    stored = zarr.open_array(str(dataset.path), path=f"graph/{graph.key}/block/00000/indices", mode="r")
    np.testing.assert_array_equal(stored[:], graph.array("block/00000/indices").read())
    assert all(name in tree for name in ("indices", "indptr", "vertex", "predictions", "part ", "split"))
    # Not what is still being written.
    partitions = zarr.open_group(str(dataset.path), path="partition", mode="r")
    assert len(dict(partitions.groups())) == 1
    xarray = pytest.importorskip("xarray")
    arrays = xarray.open_zarr(str(dataset.vertices().artifact.path), consolidated=True)
    np.testing.assert_array_equal(arrays["label"], np.arange(30) % 3)
    with xarray.open_datatree(str(dataset.path), engine="zarr") as whole:
        assert whole[f"graph/{graph.key}/block/00000"].sizes["row+1"] == 31


def test_walkers_that_read_folders_find_the_same(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    listed = read_json(dataset.path / "zarr.json", sealed=False)["consolidated_metadata"]["metadata"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        zarr.consolidate_metadata(str(dataset.path))
    # They warn about the files that the specification names, and about nothing else.
    said = [str(warning.message) for warning in caught]
    objects = {text.split()[2].strip("'").rpartition("/")[2] for text in said if text.startswith("Object at ")}
    # Zarr also says that such a list is not in version 3 of its specification yet.
    assert all(text.startswith(("Object at ", "Consolidated metadata is currently not part")) for text in said)
    specification = Path(__file__).parents[3] / "docs" / "reference" / "format.md"
    named = re.findall(r"`([^`]+)`", specification.read_text().partition("## Zarr readers")[2].partition("## ")[0])
    assert "manifest.json" in objects
    assert objects <= set(named)
    found = read_json(dataset.path / "zarr.json", sealed=False)["consolidated_metadata"]["metadata"]
    assert {name for name in found if "checkpoint" not in name} == set(listed)
    assert all(found[name]["node_type"] == node["node_type"] for name, node in listed.items())
    assert any("checkpoint/00000003/layers/0/weight" in name for name in found)


def test_the_list_follows_what_is_added_and_removed(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    assert are_lists_current(dataset.path)
    store_run(dataset, "second")
    assert "runs/second/predictions/label" in zarr.open_group(str(dataset.path), mode="r")
    dataset.remove_artifact("runs", "second")
    assert "runs/second" not in zarr.open_group(str(dataset.path), mode="r")
    # As a kill between a removal and the new list leaves it.
    shutil.rmtree(dataset.find("shards").path)
    (problem,) = (finding for finding in dataset.verify(quick=True) if finding.problem)
    assert (problem.kind, problem.is_damaged) == ("list", False)
    dataset.collect_garbage()
    assert are_lists_current(dataset.path)
    assert not [finding for finding in dataset.verify(quick=True) if finding.problem]


def test_opening_a_dataset_does_not_parse_its_list(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    path = dataset.path / "zarr.json"
    path.write_text(path.read_text().replace('"kind": "inline"', "kind"))
    assert Catalog(catalog.root)["web"].name == dataset.name
    assert [finding.kind for finding in dataset.verify(quick=True) if finding.problem] == ["list"]


def test_a_list_of_another_program_hides_no_dataset(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    path = dataset.path / "zarr.json"
    content = read_json(path, sealed=False)
    # The list is last, and the last type in the file is that of one of its nodes.
    names = ("zarr_format", "node_type", "attributes", "consolidated_metadata")
    path.write_text(json.dumps({name: content[name] for name in names}))
    assert Catalog(catalog.root)["web"].name == dataset.name
    path.write_text(json.dumps({**content, "node_type": "array"}, sort_keys=True).replace("gnnloom", "other"))
    with pytest.raises(FormatError, match="a Zarr array, but not a gnnloom dataset"):
        Catalog(catalog.root)["web"]


def test_a_list_that_would_be_too_long_is_left_out(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MOST_NODES", 5)
    dataset = store_small_dataset(catalog)
    assert "consolidated_metadata" not in read_json(dataset.path / "zarr.json", sealed=False)
    assert "consolidated_metadata" in read_json(dataset.vertices().artifact.path / "zarr.json", sealed=False)
    refresh_list(dataset.path)
    assert not [finding for finding in dataset.verify(quick=True) if finding.problem]


def test_an_artifact_whose_list_would_be_too_long_lists_its_sections(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MOST_NODES", 4)
    dataset = store_small_dataset(catalog)
    path = dataset.graph().artifact.path
    assert "consolidated_metadata" not in read_json(path / "zarr.json", sealed=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        block = zarr.open_group(str(path), path="block/00000", mode="r", use_consolidated=True)
        assert sorted(dict(block.members())) == ["indices", "indptr"]
    # Its nodes are not read to find that the dataset's list would be too long.
    (path / "block" / "00000" / "indptr" / "zarr.json").rename(path / "elsewhere")
    assert listing.wanted_lists(dataset.path)["graph"] is listing.wanted_lists(dataset.path)["."] is None
    (path / "elsewhere").rename(path / "block" / "00000" / "indptr" / "zarr.json")
    assert are_lists_current(dataset.path)
    assert not [item for item in dataset.verify() if item.is_damaged and item.kind != "shards"]


def test_a_dataset_killed_while_it_was_made_can_be_made_again(catalog: Catalog) -> None:
    (catalog.root / "web").mkdir(parents=True)
    (catalog.root / "web" / f".zarr.json.{'0' * 32}").write_text('{"zarr_fo')
    assert catalog.create("web").artifacts() == []
    assert "web" in catalog
