"""Invariants of the metadata that other Zarr readers use: it agrees with the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import zarr

from gnnloom.storage.artifacts.csr_group import ENCODING_TYPE
from gnnloom.storage.catalog import DATASET_ATTRIBUTES, Dataset
from gnnloom.storage.checks.tree_invariants import check_group, check_list, check_tree
from gnnloom.storage.disk.files import parsing, read_json
from gnnloom.storage.disk.groups import METADATA
from gnnloom.storage.disk.locks import is_held, lock_path
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.arrays import ArrayRecord
from gnnloom.storage.format.artifact import MANIFEST, Artifact, artifact_key
from gnnloom.storage.format.listing import listed_nodes, wanted_lists
from gnnloom.storage.format.schema import SCHEMAS
from gnnloom.storage.format.sections import section_name


def check_metadata(artifact: Artifact) -> None:
    """Check that Zarr can read the metadata of every array and group, and that it agrees with the manifest.

    Raises:
        CorruptError: some metadata cannot be read or differs.
    """
    _check_key(artifact)
    records = artifact.records
    for record in records.values():
        _check_array(artifact, record)
    check_tree(artifact.path, records.values(), {MANIFEST, *map(section_name, artifact.sections)})
    folders = {str(folder) for path in records for folder in PurePosixPath(path).parents}
    for folder in sorted(folders):
        _check_group(artifact, folder)
    for folder in (".", *artifact.sections):
        check_list(artifact.path / folder)
    for folder in sorted(folders):
        check_group(artifact.path / folder)


def _check_key(artifact: Artifact) -> None:
    """Check that the artifact has the key that follows from its parameters and inputs."""
    manifest = artifact.manifest
    wanted = artifact_key(artifact.kind, artifact.parameters, artifact.inputs, artifact.version)
    if (manifest["kind"], manifest["key"], wanted) != (artifact.kind, artifact.key, artifact.key):
        raise CorruptError(
            f"{artifact.path / MANIFEST}: the manifest of {manifest['kind']}/{manifest['key']}, whose parameters and"
            f" inputs give the key {wanted}"
        )


def check_lists(dataset: Dataset) -> tuple[str | None, str | None]:
    """Check the metadata of a dataset and of its kinds of artifacts.

    Returns:
        Messages about damage, and about an outdated list for Zarr readers; None if there is none.
    """
    # The folder of a kind may just have been made for its first artifact or run.
    kinds = [kind for kind in (*SCHEMAS, "runs") if (dataset.path / kind / METADATA).exists()]
    groups = {".": DATASET_ATTRIBUTES} | {kind: {} for kind in kinds}
    try:
        for folder, wanted in groups.items():
            check_group(dataset.path / folder, wanted)
        return None, _outdated(dataset, list(groups))
    except CorruptError as error:
        return str(error), None


def _outdated(dataset: Dataset, groups: list[str]) -> str | None:
    """Message about a group of a dataset whose list does not match its contents; None if all lists match."""
    lists = wanted_lists(dataset.path)
    for folder in groups:
        listed = listed_nodes(dataset.path / folder)
        prefix = "" if folder == "." else f"{folder}/"
        wanted = lists[folder]
        # A list that has become too long is no longer written.
        if listed is not None and (
            wanted is None or _settled(dataset, listed, prefix) != _settled(dataset, wanted, prefix)
        ):
            return (
                f"{dataset.path / folder / 'zarr.json'}: does not list what is stored, which misleads Zarr readers;"
                f" `gnnloom catalog gc {dataset.name}` writes the list again"
            )
    return None


def _settled(dataset: Dataset, nodes: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The nodes, without nodes of runs that a process is writing."""
    lock = cache(lambda run: is_held(lock_path(dataset.path, "runs", run)))

    def is_settled(name: str) -> bool:
        parts = PurePosixPath(prefix + name).parts
        return parts[0] != "runs" or len(parts) == 1 or not lock(parts[1])

    return {name: node for name, node in nodes.items() if is_settled(name)}


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
    content = read_json(path, sealed=False)
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
        return {"encoding-type": f"gnnloom-{artifact.kind}", "encoding-version": str(artifact.version)}
    pointers, indices = (artifact.records.get(f"{folder}/{name}") for name in ("indptr", "indices"))
    # Only groups of CSR matrices have attributes that follow from the manifest.
    if pointers is None or indices is None or "encoding-type" not in attributes:
        return {}
    rows, columns = pointers.shape[0] - 1, attributes["shape"][1]
    return {"encoding-type": ENCODING_TYPE, "nnz": indices.shape[0], "shape": [rows, columns]}
