"""The files of a folder in OGB's raw layout, each of which may be compressed."""

from __future__ import annotations

from pathlib import Path

from gnnloom.pipeline.sources.reading.files import SourceFile, is_local, open_files
from gnnloom.storage.errors import NotFoundError


def ogb_root(folder: str) -> str:
    """The folder without a slash at its end.

    Raises:
        NotFoundError: the folder does not exist.
    """
    if is_local(folder) and not Path(folder).is_dir():
        raise NotFoundError(f"{folder}: there is no such folder; expected one that contains raw/edge.csv.gz")
    return folder.rstrip("/")


def find_file(root: str, name: str) -> SourceFile | None:
    """A file of the folder, named without its extension; None if there is none."""
    for suffix in (".csv.gz", ".csv"):
        try:
            return open_files([f"{root}/{name}{suffix}"])[0]
        except NotFoundError:
            continue
    return None


def required_file(root: str, name: str) -> SourceFile:
    """A file of the folder, named without its extension.

    Raises:
        NotFoundError: the file does not exist.
    """
    file = find_file(root, name)
    if file is None:
        raise NotFoundError(f"{root}/{name}.csv.gz: there is no such file; expected OGB's raw layout")
    return file
