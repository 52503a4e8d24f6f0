"""Removes one artifact or run, unless another artifact was made from it."""

from __future__ import annotations

from pathlib import Path

from gnnloom.storage.catalog import Dataset, check_name
from gnnloom.storage.disk.files import MAPPED, remove_tree
from gnnloom.storage.disk.locks import held, lock_path
from gnnloom.storage.disk.work_folder import remove_tree_and_scratch
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.artifact import WORK
from gnnloom.storage.format.listing import refresh_list
from gnnloom.storage.format.mapped_copy import copy_lock
from gnnloom.storage.upkeep.lineage import lineage


def remove_artifact(dataset: Dataset, kind: str, key: str, *, force: bool = False) -> None:
    """Delete an artifact with its uncompressed copy, or a run (``kind`` "runs").

    Args:
        force: remove it even if other artifacts were made from it. These become useless: the next garbage
            collection removes them, except runs.

    Raises:
        NotFoundError: the dataset has no such artifact.
        InputError: other artifacts were made from it, or a process is writing it.
    """
    name = f"{kind}/{key}"
    path = dataset.path / check_name(kind, "artifact kind") / check_name(key, "artifact")
    _check_exists(path, name, dataset)
    node = None if force else lineage(dataset).get(name)
    if node is not None and node.outputs:
        raise InputError(f"{path}: needed by {', '.join(node.outputs)}; remove these first, or use --force")
    with held(lock_path(dataset.path, kind, key)) as is_ours:
        if not is_ours:
            raise InputError(f"{path}: is being written by another process; wait for it, or end it")
        # Another process may have removed it in the meantime.
        _check_exists(path, name, dataset)
        remove_tree_and_scratch(path, WORK)
        _remove_copy(dataset.path / MAPPED / f"{kind}-{key}")
    refresh_list(dataset.path)


def _remove_copy(path: Path) -> None:
    """Delete the uncompressed copy of an artifact, unless a process reads it: then garbage collection will."""
    if path.is_dir():
        with held(copy_lock(path)) as is_unused:
            if is_unused:
                remove_tree(path)


def _check_exists(path: Path, name: str, dataset: Dataset) -> None:
    if not path.is_dir():
        raise NotFoundError(f"dataset {dataset.name} has no {name}")
