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
    """The folder of the temporary files of an artifact, and the sizes that decide how its tasks divide the work.

    The bytes of the artifact do not depend on these sizes, except for the sizes of row blocks, which are part of the
    format. Tests make them small, so that little data has many blocks, files and steps.

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
        spill_entries: maximum number of entries of a spill file (32 to 96 MiB). Larger files would make neither pass of
            the sort faster.
        merge_entries: entries of spill files that a merge holds at a time.
        sorted_entries: maximum number of entries of a row block that a task sorts at a time; None for what the memory
            of the worker allows.
        read_edges: edges of a stored matrix, or of numbered edges, that a task reads at a time.
        range_rows: rows of a matrix whose pointers a task holds at a time: 16 MiB. Graphs of up to 2^31 vertices have
            no larger blocks.
        step_entries: entries of a matrix that a task works on at a time, where it holds more for each than the entry;
            of pairs of vertices, a quarter of the number.
        gathered_bytes: bytes of keys that a task gathers before it sorts and writes them; None for what the memory of
            the worker allows.
        merged_bytes: bytes of keys that a task merges at a time; None for what the memory of the worker allows.
        routed_bytes: maximum number of bytes of rows of a table that a task gathers for a run, unless the memory of the
            worker is smaller.
        bucket_bytes: bytes of the values, and of the ids of the vertices, of a bucket of such rows.
        task_pieces: pieces, of four chunks, that a task writes of an array of vertex data.
        block_entries: maximum number of entries (including added self loops) of a row block, unless a single unit has
            more. Sorting them takes 128 MiB (224 MiB with weights), so a worker with the default memory sorts a block
            at once. Part of the format.
        block_rows: maximum number of rows of a row block, unless a single unit has more: at the 48 bytes that a task
            holds for each, they take 192 MiB. Part of the format.
    """

    folder: Path | None = None
    files: int = 16
    page_bytes: int = 4 << 20
    sources: int = 16
    source_bytes: int = 64 << 10
    spill_files: int = 512
    range_bytes: int = 32 << 20
    slice_bytes: int = 64 << 10
    spill_entries: int = 1 << 23
    merge_entries: int = 1 << 21
    sorted_entries: int | None = None
    read_edges: int = 1 << 21
    range_rows: int = 1 << 21
    step_entries: int = 1 << 20
    gathered_bytes: int | None = None
    merged_bytes: int | None = None
    routed_bytes: int = 512 << 20
    bucket_bytes: int = 24 << 20
    task_pieces: int = 16
    block_entries: int = 1 << 23
    block_rows: int = 1 << 22


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
