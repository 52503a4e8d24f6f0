"""Checkpoints of a run: named arrays and JSON facts, complete or absent.

A checkpoint is a folder ``EPOCH`` with one Zarr array per name, and ``checkpoint.json``, which lists the arrays with
their digests. It is written under a temporary name, possibly by several processes, and then renamed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnloom.storage.disk.files import JsonObject, read_json, remove_tree, sync_folder, sync_tree, write_json
from gnnloom.storage.errors import CorruptError, NotFoundError
from gnnloom.storage.faults import fault_point
from gnnloom.storage.format.arrays import Array, ArrayReader, ArrayRecord, ReadCounter, write_array
from gnnloom.storage.format.listing import complete_groups, list_checkpoints, write_list
from gnnloom.storage.format.schema import FORMAT_VERSION, VERSION_ENTRY, check_version

#: File that lists the arrays of a checkpoint.
CHECKPOINT_INDEX = "checkpoint.json"
#: Checkpoints that are kept by default: the last one and the one before it.
_KEPT = 2
#: Dimensions of an array of one number that was given without dimensions.
_SCALAR_DIMS = ("scalar",)


@dataclass(frozen=True)
class Checkpoint:
    """Contents of a checkpoint to write: arrays by name (may contain ``/``) and JSON facts."""

    epoch: int
    arrays: Mapping[str, Array]
    facts: JsonObject


@dataclass(frozen=True)
class StoredCheckpoint:
    """A checkpoint on disk, checked against its digests; arrays are read on request."""

    epoch: int
    readers: Mapping[str, ArrayReader]
    facts: JsonObject

    @property
    def arrays(self) -> dict[str, Array]:
        """All arrays, read into memory."""
        return {name: self.read(name) for name in self.readers}

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of an array as it was given; None if there is no such array."""
        reader = self.readers.get(name)
        if reader is None:
            return None
        return () if _is_scalar(reader) else reader.shape

    def read(self, name: str) -> Array:
        """An array as it was given, read into memory."""
        reader = self.readers[name]
        return reader.read().reshape(()) if _is_scalar(reader) else reader.read()


def _is_scalar(reader: ArrayReader) -> bool:
    return reader.record.dims == _SCALAR_DIMS


def checkpoint_epochs(folder: Path) -> list[int]:
    """Epochs of the complete checkpoints below ``folder``, ascending."""
    # Not a pattern, which raises an error if the folder is removed between two looks at it.
    with suppress(FileNotFoundError):
        found = [path for path in folder.iterdir() if path.name.isdecimal()]
        return sorted(int(path.name) for path in found if (path / CHECKPOINT_INDEX).exists())
    return []


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint below ``folder`` from one process, and drop all but the last two.

    Returns:
        The checkpoint's folder.
    """
    aside = begin_checkpoint(folder, checkpoint.epoch)
    records = write_arrays(aside, checkpoint.arrays)
    return publish_checkpoint(folder, checkpoint.epoch, records, checkpoint.facts)


def checkpoint_aside(folder: Path, epoch: int) -> Path:
    """Folder in which a checkpoint is written before :func:`publish_checkpoint`."""
    return folder / f".writing-{epoch:08d}"


def begin_checkpoint(folder: Path, epoch: int) -> Path:
    """Make an empty :func:`checkpoint_aside`; called by one process, before any process writes to it."""
    aside = checkpoint_aside(folder, epoch)
    # A killed attempt at the same epoch may have left arrays, possibly of another number of ranks.
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    return aside


def write_arrays(aside: Path, arrays: Mapping[str, Array]) -> list[ArrayRecord]:
    """Write whole arrays of a checkpoint; called by one process."""
    return [_write_array(aside, name, array) for name, array in sorted(arrays.items())]


def _write_array(aside: Path, name: str, array: Array) -> ArrayRecord:
    # Arrays are written by rows, so a scalar becomes a row.
    if not array.ndim:
        return write_array(aside, name, array.reshape(1), _SCALAR_DIMS)
    return write_array(aside, name, array, [f"dim{axis}" for axis in range(array.ndim)])


def publish_checkpoint(
    folder: Path, epoch: int, records: Iterable[ArrayRecord], facts: JsonObject, kept: int = _KEPT
) -> Path:
    """Rename a written checkpoint into place, and drop old ones; called by one process, after all wrote.

    Args:
        kept: number of checkpoints that stay: this one and the last of the others.

    Returns:
        The checkpoint's folder.
    """
    aside, final = checkpoint_aside(folder, epoch), folder / f"{epoch:08d}"
    arrays = {record.path: record.to_json() for record in records}
    content = {VERSION_ENTRY: FORMAT_VERSION, "epoch": epoch, "facts": dict(facts), "arrays": arrays}
    complete_groups(aside, arrays)
    nodes = write_list(aside)
    # The index and all arrays are durable before the rename, so a name that is a number means a complete checkpoint.
    # Old checkpoints are dropped only after the rename is durable.
    # On one line: it lists every array, and Python writes lines ten times faster.
    write_json(aside / CHECKPOINT_INDEX, content, indent=None)
    sync_tree(aside)
    # A resumed run can reach an epoch again whose checkpoint it did not start from.
    fault_point("checkpoint.publish")
    if final.exists():
        remove_tree(final)
    aside.rename(final)
    fault_point("checkpoint.published")
    sync_folder(folder)
    others = [each for each in checkpoint_epochs(folder) if each != epoch]
    for old in others[: max(0, len(others) + 1 - kept)]:
        remove_tree(folder / f"{old:08d}")
    list_checkpoints(folder, {final.name: nodes})
    return final


def checkpoint_facts(folder: Path) -> tuple[int, JsonObject] | None:
    """Epoch and facts of the last checkpoint; None if there is none. Reads and checks no array."""
    epochs = checkpoint_epochs(folder)
    if not epochs:
        return None
    path = folder / f"{epochs[-1]:08d}"
    return epochs[-1], _facts(path, read_json(path / CHECKPOINT_INDEX))


def read_checkpoint(
    folder: Path, epoch: int | None = None, *, share: tuple[int, int] = (0, 1), counter: ReadCounter | None = None
) -> StoredCheckpoint:
    """Open a checkpoint and check it against its digests, or a share of it.

    Args:
        folder: folder of the checkpoints.
        epoch: epoch of the checkpoint; by default the last one.
        share: number of the share to check, and number of shares. If each of several processes checks another share,
            every byte is compared with its digest once.
        counter: counts the bytes read, now and from the arrays later.

    Raises:
        NotFoundError: there is no such checkpoint.
        FormatError: the checkpoint is of a newer format.
        CorruptError: its index, or an array in this share, is damaged.
    """
    epochs = checkpoint_epochs(folder)
    chosen = epoch if epoch is not None else (epochs[-1] if epochs else None)
    if chosen is None or chosen not in epochs:
        if not epochs:
            raise NotFoundError(f"{folder}: no checkpoint yet; `gnnloom train` with the name of the run writes one")
        listed = ", ".join(map(str, epochs))
        raise NotFoundError(f"{folder}: no checkpoint of epoch {epoch}; there are checkpoints of epochs {listed}")
    path = folder / f"{chosen:08d}"
    content = read_json(path / CHECKPOINT_INDEX)
    check_version(path / CHECKPOINT_INDEX, content)
    if content.get("epoch") != chosen:
        raise CorruptError(f"{path / CHECKPOINT_INDEX}: the checkpoint of epoch {content.get('epoch')}, not {chosen}")
    readers = _open_arrays(path, content, counter)
    _verify_share(readers, *share)
    return StoredCheckpoint(chosen, readers, _facts(path, content))


def _open_arrays(path: Path, content: Mapping[str, Any], counter: ReadCounter | None) -> dict[str, ArrayReader]:
    try:
        records = [ArrayRecord.from_json(name, array) for name, array in content["arrays"].items()]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptError(f"{path / CHECKPOINT_INDEX}: not the index of a checkpoint ({error})") from error
    return {record.path: ArrayReader(path, record, counter) for record in records}


def _verify_share(readers: Mapping[str, ArrayReader], share: int, shares: int) -> None:
    """Compare every ``shares``-th piece of all arrays with its digest, from number ``share`` on."""
    number = 0
    # Everything is compared first: resuming from damaged weights would go unnoticed.
    for reader in readers.values():
        reader.check_covered()
        own = [piece for at, piece in enumerate(reader.record.pieces, number) if at % shares == share]
        number += len(reader.record.pieces)
        reader.verify_pieces(own)


def _facts(path: Path, content: Mapping[str, Any]) -> JsonObject:
    facts = content.get("facts")
    if not isinstance(facts, dict):
        raise CorruptError(f"{path / CHECKPOINT_INDEX}: the facts of the checkpoint are missing")
    return facts
