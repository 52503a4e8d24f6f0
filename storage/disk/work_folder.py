"""The folder of an unfinished artifact for plans, records and temporary files: in the artifact, or in scratch space.

In scratch space the artifact has a link to it, so that every process that sees both finds it under the same path.
"""

from __future__ import annotations

import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gnnloom.storage.disk.files import remove_tree
from gnnloom.storage.faults import fault_point

#: Prefix of the names of work folders in scratch space.
_OURS: Final = "gnnloom-"


@dataclass(frozen=True)
class Scratch:
    """The folder of the temporary files of an artifact, and the sizes that decide how its tasks divide the files.

    The bytes of the artifact do not depend on these sizes. Tests make them small, so that little data has many files.

    Attributes:
        folder: folder that all tasks see; None for the folder of the artifact.
        files: number of files that the tasks of a phase write together, for each array.
        page_bytes: bytes of a page of such a file: long enough to be read at the speed of a long file, and a multiple
            of the usual stripes of parallel file systems, on which nodes that write different stripes do not wait for
            each other.
        sources: number of sources that a task may read for each position, however few bytes it reads from each.
        source_bytes: bytes that are worth reading from one more source: copying them once more takes about as long as
            a read that waits for the disk, and much longer than one that does not.
        spill_files: maximum number of spill files that a task of the sort reads. A row block of the default size then
            reads 64 KiB or more from each; one level of merges suffices for 2^18 files, some 10^12 entries.
        range_bytes: approximate bytes of a range of keys or rows that one task reads and holds: less than the memory
            that the smallest workers have for buffers, and a second of work.
        slice_bytes: minimum of the bytes that a range of keys takes from each source on average. With fewer, a task
            would mostly search for the keys of its range and wait for short reads.
    """

    folder: Path | None = None
    files: int = 16
    page_bytes: int = 4 << 20
    sources: int = 16
    source_bytes: int = 64 << 10
    spill_files: int = 512
    range_bytes: int = 32 << 20
    slice_bytes: int = 64 << 10


#: Temporary files in the artifact's own folder.
BESIDE: Final = Scratch()


def open_work_folder(path: Path, scratch: Path | None) -> None:
    """Make the work folder ``path`` if it is not there.

    Unfinished work stays in its folder. If scratch space was cleared in the meantime, the work is lost, and the tasks
    run again.

    Args:
        scratch: folder to make it in, with a link at ``path``; None for ``path`` itself.
    """
    if path.is_symlink() and not (path.exists() and _is_ours(path)):
        remove_work_folder(path)
    if path.exists():
        return
    if scratch is None:
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own: artifacts of other catalogs may have the same key.
    folder = scratch.resolve() / f"{_OURS}{path.parent.name}-{uuid.uuid4().hex}"
    folder.mkdir(parents=True)
    path.symlink_to(folder, target_is_directory=True)


def remove_tree_and_scratch(path: Path, pattern: str) -> None:
    """Delete a folder of artifacts, and what their work folders link to in scratch space.

    Args:
        pattern: where the work folders are below ``path``.
    """
    # First, as the links are lost with the folder. An artifact that loses its work folder begins again.
    for work in path.glob(pattern):
        if work.is_symlink():
            remove_work_folder(work)
    remove_tree(path)


def remove_work_folder(path: Path) -> None:
    """Remove a work folder, wherever it is, of an artifact that is complete or about to be removed."""
    if not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    # A catalog of others may have a link to anything.
    if not _is_ours(path):
        path.unlink()
        return
    # Renamed first: a stage that resumed from half of it would trust the records of work that is gone. A removal that
    # was killed left the link, which leads here again.
    folder = path.resolve()
    doomed = folder.with_name(f".removed-{folder.name}")
    if folder.is_dir():
        shutil.rmtree(doomed, ignore_errors=True)
        fault_point("tree.remove")
        folder.rename(doomed)
        fault_point("tree.removed")
    shutil.rmtree(doomed, ignore_errors=True)
    path.unlink(missing_ok=True)


def _is_ours(link: Path) -> bool:
    """Whether a link leads to a folder of the name that :func:`open_work_folder` gives, there or not."""
    return re.fullmatch(rf"{_OURS}.+-[0-9a-f]{{32}}", link.resolve().name) is not None
