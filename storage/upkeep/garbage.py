"""Finds and removes what nothing needs: unfinished artifacts, leftovers, and artifacts whose inputs are gone.

A process that writes an artifact or a run holds its lock (see
:meth:`gnnloom.storage.format.artifact.ArtifactWriter.begin`). Whatever is locked is never touched, and nothing is
removed without holding its lock. The folder of a run is made before its ranks lock it, so leftovers of runs must also
have been unchanged for an hour.
"""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from gnnloom.storage.artifacts.artifact_info import ArtifactInfo
from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.disk.files import MAPPED, tree_bytes
from gnnloom.storage.disk.locks import LOCKS, held, is_held, is_shared, lock_path
from gnnloom.storage.disk.work_folder import remove_tree_and_scratch, remove_work_folder
from gnnloom.storage.errors import CorruptError, GnnloomError
from gnnloom.storage.format.artifact import MANIFEST, WORK, Artifact
from gnnloom.storage.format.listing import (
    LISTING_LOCK,
    are_lists_current,
    outdated_run_lists,
    refresh_list,
    refresh_run_lists,
)
from gnnloom.storage.format.mapped_copy import copies, copy_lock
from gnnloom.storage.format.schema import SCHEMAS
from gnnloom.storage.runs.run import Run

#: Seconds without a change after which a leftover that nobody locks counts as garbage.
QUIET_SECONDS = 3600
#: Temporary names of files that are being written: a dot, the final name, a dot and a unique number.
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}")


@dataclass(frozen=True)
class Garbage:
    """Something to remove.

    Attributes:
        path: the file or folder.
        reason: why nothing needs it.
        bytes: its size on disk.
        lock: the lock to hold while it is removed, if it has one.
    """

    path: Path
    reason: str
    bytes: int
    lock: Path | None = None


def find_garbage(dataset: Dataset) -> list[Garbage]:
    """Find what nothing needs in a dataset, and no living process holds."""
    artifacts = [info for info in dataset.artifacts() if not is_held(_lock_of(info))]
    found = [_garbage(info.path, "begun and not finished", info) for info in artifacts if info.state != "complete"]
    found += [_garbage(info.path, reason, info) for info, reason in _useless(dataset)]
    useless = {item.path for item in found}
    for info in artifacts:
        if info.path not in useless:
            found += [_garbage(path, "scratch of a finished artifact", info) for path in _scratch(info.path)]
    found += [_garbage(path, "left by a removal") for folder in _folders(dataset) for path in _removed(folder)]
    found += [_garbage(path, "left by a run that was ended") for path in _run_leftovers(dataset)]
    found += _unused_copies(dataset)
    return found + [Garbage(path, "lock that nobody holds", 0, path) for path in _old_locks(dataset)]


def find_catalog_garbage(catalog: Catalog) -> list[Garbage]:
    """Find what imports and removals of whole datasets left in the catalog's folder."""
    if not catalog.root.is_dir():
        return []
    # An import holds a lock on its own folder, which the system releases when it ends.
    imports = [path for path in sorted(catalog.root.glob(".importing-*")) if not is_held(path)]
    found = [Garbage(path, "left by an import", tree_bytes(path), path) for path in imports]
    return found + [_garbage(path, "left by a removal") for path in _removed(catalog.root)]


def collect_garbage(dataset: Dataset, *, dry_run: bool = False) -> list[Garbage]:
    """Remove the garbage of a dataset.

    Args:
        dry_run: only find it.

    Returns:
        The removed files and folders; with ``dry_run``, the files and folders that would be removed.
    """
    if dry_run:
        return find_garbage(dataset)
    removed = remove_garbage(find_garbage(dataset))
    refresh_lists(dataset)
    return removed


def refresh_lists(dataset: Dataset) -> None:
    """Rewrite outdated lists, which a killed process leaves behind; a run that is in progress writes its own."""
    for run in dataset.runs():
        _refresh_run(dataset, run)
    if not are_lists_current(dataset.path):
        refresh_list(dataset.path)


def _refresh_run(dataset: Dataset, run: str) -> None:
    """Write the lists of a run again if its writer was killed before it did."""
    path = dataset.run_path(run)
    try:
        if outdated_run_lists(path):
            with held(lock_path(dataset.path, "runs", run)) as is_ours:
                if is_ours:
                    refresh_run_lists(path)
    except CorruptError:
        # Damage is not garbage; `verify` reports it.
        return


def collect_catalog_garbage(catalog: Catalog, *, dry_run: bool = False) -> list[Garbage]:
    """Like :func:`collect_garbage`, for the catalog's own folder without its datasets."""
    return find_catalog_garbage(catalog) if dry_run else remove_garbage(find_catalog_garbage(catalog))


def remove_garbage(items: list[Garbage]) -> list[Garbage]:
    """Remove garbage, except items that a process has locked in the meantime; returns the removed items."""
    removed = []
    for item in items:
        # The search may be minutes old: a stage can have locked, finished or removed the item since.
        with held(item.lock) as is_ours:
            if is_ours and _is_still_garbage(item):
                _remove(item.path)
                removed.append(item)
    return removed


def _is_still_garbage(item: Garbage) -> bool:
    """Whether it still exists and was not finished between the search and now."""
    finished = item.reason == "begun and not finished" and (item.path / MANIFEST).exists()
    return item.path.exists() and not finished


def _remove(path: Path) -> None:
    """Delete a file or a folder; a folder is renamed first, so that nobody sees half of it."""
    if path.name == WORK:
        remove_work_folder(path)
        return
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    # A kill after the rename leaves a hidden folder, which the next collection removes.
    if path.name.startswith("."):
        shutil.rmtree(path, ignore_errors=True)
    else:
        remove_tree_and_scratch(path, WORK)


def _garbage(path: Path, reason: str, info: ArtifactInfo | None = None) -> Garbage:
    size = tree_bytes(path) if path.is_dir() else path.stat().st_size
    return Garbage(path, reason, size, None if info is None else _lock_of(info))


def _lock_of(info: ArtifactInfo) -> Path:
    return lock_path(info.path.parents[1], info.kind, info.key)


def _useless(dataset: Dataset) -> list[tuple[ArtifactInfo, str]]:
    """Complete artifacts with an input that is missing or itself useless; an input being made counts as present."""
    infos = dataset.artifacts()
    there = {(info.kind, info.key) for info in infos if info.state == "complete" or is_held(_lock_of(info))}
    useless: list[tuple[ArtifactInfo, str]] = []
    # Inputs mostly come before what is made from them, so that one pass finds whole chains: a useless artifact is taken
    # out of ``there``, which makes everything made from it useless, too. Links are made from a graph, and a graph from
    # links, so that there may have to be another pass.
    waiting = sorted(infos, key=lambda info: _ORDER.index(info.kind))
    waiting = [info for info in waiting if info.state == "complete" and not is_held(_lock_of(info))]
    while True:
        found = []
        for info in waiting:
            lost = [name for name in _artifact_inputs(info) if name not in there]
            if lost:
                there.discard((info.kind, info.key))
                found.append((info, f"made from {'/'.join(lost[0])}, which is not there"))
        if not found:
            return useless
        useless += found
        waiting = [info for info in waiting if (info.kind, info.key) in there]


#: Kinds of artifacts, each after the kinds that it can be made from.
_ORDER = (*(kind for kind in SCHEMAS if kind != "shards"), "shards")


def _artifact_inputs(info: ArtifactInfo) -> list[tuple[str, str]]:
    """Kinds and keys of the inputs that are artifacts; empty if the manifest is damaged, which `verify` reports."""
    try:
        inputs = Artifact(info.path).inputs
    except GnnloomError:
        return []
    # The vertex data of a type are called by the type, too.
    kinds = ((name.partition("/")[0], str(key)) for name, key in inputs.items())
    return [(kind, key) for kind, key in kinds if kind in SCHEMAS]


def _scratch(artifact: Path) -> list[Path]:
    return [path for path in sorted(artifact.glob(".*")) if path.name == WORK or _TEMPORARY.fullmatch(path.name)]


def _folders(dataset: Dataset) -> list[Path]:
    return [dataset.path, *(dataset.path / kind for kind in SCHEMAS), dataset.runs_path]


def _removed(folder: Path) -> list[Path]:
    return sorted(folder.glob(".removed-*"))


def _run_leftovers(dataset: Dataset) -> list[Path]:
    """Temporary files of runs, and folders of runs that ended before their configuration was written."""
    begun = [path for path in dataset.runs_path.glob("[!.]*") if path.is_dir() and path.name not in dataset.runs()]
    below = ("", "checkpoint/", "checkpoint/best/")
    aside = [path for folder in below for path in dataset.runs_path.glob(f"[!.]*/{folder}.*")]
    superseded = [Run(dataset.run_path(name)).superseded_predictions for name in dataset.runs()]
    aside += [path for path in superseded if path is not None]
    # A folder that is removed as a whole must not be listed again file by file.
    begun_folders = {*begun}
    aside = [path for path in aside if not begun_folders & {*path.parents}]
    left = [path for path in (*begun, *aside) if _is_quiet(path)]
    return sorted(path for path in left if not is_held(_lock_of_run(dataset, path)))


def _unused_copies(dataset: Dataset) -> list[Garbage]:
    """Uncompressed copies that no process has open, and unfinished copies."""
    folder = dataset.path / MAPPED
    unused = [path for path in copies(dataset.path) if not is_shared(copy_lock(path))]
    found = [
        Garbage(path, "copy for random access, which is made again when needed", tree_bytes(path), copy_lock(path))
        for path in unused
    ]
    # The name of an unfinished copy is the copy's name between a dot and a unique number.
    begun = [path for path in sorted(folder.glob(".*")) if _TEMPORARY.fullmatch(path.name)]
    locks = {path: copy_lock(path.with_name(path.stem.removeprefix("."))) for path in begun}
    return found + [
        Garbage(path, "begun and not finished", tree_bytes(path), lock)
        for path, lock in locks.items()
        if not is_shared(lock)
    ]


def _lock_of_run(dataset: Dataset, path: Path) -> Path:
    """The lock of the run that owns this path."""
    return lock_path(dataset.path, "runs", path.relative_to(dataset.runs_path).parts[0])


def _old_locks(dataset: Dataset) -> list[Path]:
    """Locks that can be removed without harm.

    A process that opened a lock just before its removal holds a lock that others do not see. For a finished artifact
    this is harmless: the next process finds it finished. Other locks are removed only if they are old.
    """
    finished = {_lock_of(info) for info in dataset.artifacts() if info.state == "complete"}
    begun = {_lock_of(info) for info in dataset.artifacts()} - finished
    locks = sorted((dataset.path / LOCKS).glob("*"))
    # The list of a dataset is locked for moments, and a process that takes its lock checks that the file is still
    # there.
    harmless = {*finished, lock_path(dataset.path, *LISTING_LOCK)}
    free = [lock for lock in locks if lock not in begun and not is_shared(lock)]
    return [lock for lock in free if lock in harmless or _is_quiet(lock)]


def _is_quiet(path: Path) -> bool:
    try:
        # Of all entries: writing into a file changes neither the time of its folder nor of the folders above.
        newest = max(entry.stat().st_mtime for entry in (path, *path.rglob("*")))
    except FileNotFoundError:
        # A file vanished during the walk, so a process is changing the folder right now.
        return False
    return time.time() - newest > QUIET_SECONDS
