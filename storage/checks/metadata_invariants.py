"""Invariants of the metadata that other Zarr readers use: it agrees with the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import zarr

from gnnloom.storage.artifacts.csr_group import ENCODING_TYPE
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.arrays import ArrayRecord
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.files import parsing, read_json
from gnnloom.storage.format.listing import dataset_nodes, listed_nodes, nodes_below


def check_metadata(artifact: Artifact) -> None:
    """Check that Zarr can read the metadata of every array and group, and that it agrees with the manifest.

    Raises:
        CorruptError: some metadata cannot be read or differs.
    """
    records = artifact.records
    for record in records.values():
        _check_array(artifact, record)
    folders = {str(folder) for path in records for folder in PurePosixPath(path).parents}
    for folder in sorted(folders):
        # Earlier versions did not write every group between an artifact and its arrays.
        if (artifact.path / folder / "zarr.json").exists():
            _check_group(artifact, folder)
    listed = listed_nodes(artifact.path)
    # Earlier versions wrote no lists.
    if listed is not None and listed != nodes_below(artifact.path):
        raise CorruptError(f"{artifact.path / 'zarr.json'}: lists other groups and arrays than there are below it")


def check_list(dataset: Dataset) -> str | None:
    """Compare a dataset's list for Zarr readers with what is stored; returns the problem, if there is one."""
    listed = listed_nodes(dataset.path)
    # A run may have begun or ended between the two lookups, so runs are not compared.
    wanted = {name: node for name, node in dataset_nodes(dataset.path).items() if not name.startswith("runs")}
    found = {name: node for name, node in (listed or {}).items() if not name.startswith("runs")}
    if listed is None or found == wanted:
        return None
    return (
        f"{dataset.path / 'zarr.json'}: does not list what is stored, which misleads Zarr readers;"
        f" `gnnloom catalog gc {dataset.name}` writes the list again"
    )


def _check_array(artifact: Artifact, record: ArrayRecord) -> None:
    folder = artifact.path / record.path
    with parsing(folder / "zarr.json", "the metadata of an array"):
        array = zarr.open_array(str(folder), mode="r")
        names = tuple(array.metadata.dimension_names or ())  # type: ignore[union-attr]
        found = (tuple(array.shape), np.dtype(array.dtype).name, names)
    if found != (record.shape, record.dtype, record.dims):
        raise CorruptError(
            f"{folder / 'zarr.json'}: {found[1]} of shape {found[0]} with dimensions {found[2]}, the manifest says"
            f" {record.dtype} of shape {record.shape} with dimensions {record.dims}"
        )


def _check_group(artifact: Artifact, folder: str) -> None:
    path = artifact.path / folder / "zarr.json"
    content = read_json(path)
    with parsing(path, "the metadata of a group"):
        attributes = dict(content.get("attributes", {}))
        if (content["zarr_format"], content["node_type"]) != (3, "group"):
            raise CorruptError(f"{path}: expected a group of Zarr's format 3")
        expected = _expected_attributes(artifact, folder, attributes)
        for name, value in expected.items():
            if attributes.get(name) != value:
                raise CorruptError(f"{path}: {name} is {attributes.get(name)!r}, the manifest says {value!r}")


def _expected_attributes(artifact: Artifact, folder: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a group's attributes that follow from the manifest."""
    if folder == ".":
        return {"encoding-type": f"gnnloom-{artifact.kind}"}
    pointers, indices = (artifact.records.get(f"{folder}/{name}") for name in ("indptr", "indices"))
    # Only groups of CSR matrices have attributes that follow from the manifest.
    if pointers is None or indices is None or "encoding-type" not in attributes:
        return {}
    rows, columns = pointers.shape[0] - 1, attributes["shape"][1]
    return {"encoding-type": ENCODING_TYPE, "nnz": indices.shape[0], "shape": [rows, columns]}
