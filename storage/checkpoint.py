"""Checkpoints of a run: named arrays and some JSON, complete or absent.

A checkpoint is a folder ``EPOCH`` with one Zarr array per name and ``checkpoint.json``, which
lists them with their digests.  It is written aside and renamed.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnloom.storage.arrays import Array, ArrayReader, ArrayRecord, write_array
from gnnloom.storage.errors import CorruptError, FormatError, NotFoundError
from gnnloom.storage.files import JsonObject, read_json, sync_folder, sync_tree, write_json
from gnnloom.storage.schema import FORMAT_VERSION

_INDEX = "checkpoint.json"
_KEPT = 2


@dataclass(frozen=True)
class Checkpoint:
    """Contents of a checkpoint: arrays by name (``/`` between its parts) and JSON facts."""

    epoch: int
    arrays: Mapping[str, Array]
    facts: JsonObject


def checkpoint_epochs(folder: Path) -> list[int]:
    """Epochs of the complete checkpoints below ``folder``, ascending."""
    return sorted(int(path.parent.name) for path in folder.glob(f"[0-9]*/{_INDEX}"))


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint below ``folder`` and drop all but the last two; one process.

    Returns:
        The checkpoint's folder.
    """
    final = folder / f"{checkpoint.epoch:08d}"
    aside = folder / f".writing-{final.name}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    records = [
        write_array(aside, name, array, [f"dim{axis}" for axis in range(array.ndim)])
        for name, array in sorted(checkpoint.arrays.items())
    ]
    content = {
        "format": FORMAT_VERSION,
        "epoch": checkpoint.epoch,
        "facts": dict(checkpoint.facts),
        "arrays": {record.path: record.to_json() for record in records},
    }
    write_json(aside / _INDEX, content)
    sync_tree(aside)
    if final.exists():
        shutil.rmtree(final)
    aside.rename(final)
    sync_folder(folder)
    for epoch in checkpoint_epochs(folder)[:-_KEPT]:
        shutil.rmtree(folder / f"{epoch:08d}")
    return final


def read_checkpoint(folder: Path, epoch: int | None = None) -> Checkpoint:
    """Read a checkpoint, the last one by default, against its digests.

    Raises:
        NotFoundError: there is none.
        FormatError: it is of a newer format.
        CorruptError: an array is not what was written.
    """
    epochs = checkpoint_epochs(folder)
    chosen = epoch if epoch is not None else (epochs[-1] if epochs else None)
    if chosen is None or chosen not in epochs:
        wanted = "checkpoint" if epoch is None else f"checkpoint of epoch {epoch}"
        raise NotFoundError(f"{folder}: no {wanted}; there are {epochs}")
    path = folder / f"{chosen:08d}"
    content = read_json(path / _INDEX)
    if content.get("format", 0) > FORMAT_VERSION:
        raise FormatError(f"{path}: format {content['format']} is newer than {FORMAT_VERSION}")
    return Checkpoint(chosen, _read_arrays(path, content), _facts(path, content))


def _read_arrays(path: Path, content: Mapping[str, Any]) -> dict[str, Array]:
    arrays = {}
    try:
        records = [ArrayRecord.from_json(name, array) for name, array in content["arrays"].items()]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptError(f"{path / _INDEX}: not the index of a checkpoint ({error})") from error
    for record in records:
        reader = ArrayReader(path, record)
        reader.verify()
        arrays[record.path] = reader.read()
    return arrays


def _facts(path: Path, content: Mapping[str, Any]) -> JsonObject:
    facts = content.get("facts")
    if not isinstance(facts, dict):
        raise CorruptError(f"{path / _INDEX}: lacks its facts")
    return facts
