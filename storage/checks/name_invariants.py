"""Finds files that gnnloom did not write, such as Python modules that somebody put there to be imported.

Complete artifacts have a stricter check (:func:`gnnloom.storage.checks.tree_invariants.check_tree`): their manifests
list every file. The names of everything else follow from what writers write. Names that begin with a dot belong to
locks, temporary files and scratch folders, which archives do not contain and Python does not import.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Final

from gnnloom.storage.artifacts.artifact_info import ArtifactInfo
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.disk.groups import METADATA
from gnnloom.storage.format.artifact import MANIFEST
from gnnloom.storage.format.listing import PREDICTIONS, REPLACED_PREDICTIONS, RUNS
from gnnloom.storage.format.schema import SCHEMAS, array_files
from gnnloom.storage.format.sections import SECTIONS
from gnnloom.storage.runs.checkpoint import CHECKPOINT_INDEX
from gnnloom.storage.runs.predictions import PREDICTIONS_INDEX
from gnnloom.storage.runs.run import RUN_FILES

#: Paths below a group whose arrays may have any name.
_ARRAYS: Final = r"(?:[^/]+/)*(?:zarr\.json|c(?:/\d+)+)"
_OWN_FOLDERS: Final = rf"checkpoint|{PREDICTIONS}|{REPLACED_PREDICTIONS}"
_RUN: Final = re.compile(
    "|".join(
        (
            *map(re.escape, sorted({METADATA, *RUN_FILES})),
            rf"checkpoint(?:/best)?/(?:zarr\.json|\d{{8,}}/(?:{re.escape(CHECKPOINT_INDEX)}|{_ARRAYS}))",
            rf"(?:{PREDICTIONS}|{REPLACED_PREDICTIONS})/(?:{re.escape(PREDICTIONS_INDEX)}|{_ARRAYS})",
        )
    )
)
#: The folder of a logger, which may write any files except code.
_LOGGED: Final = re.compile(rf"(?!(?:{_OWN_FOLDERS})/)[^/]+/.+")
_CODE: Final = (*all_suffixes(), ".pyd", ".pth")


def unknown_files(dataset: Dataset, artifacts: Sequence[ArtifactInfo]) -> Iterator[Path]:
    """Files that belong to no complete artifact and no run, and that gnnloom did not write.

    Args:
        artifacts: all artifacts of the dataset; reading their manifests again would take as long as before.
    """
    kinds = [dataset.path / kind for kind in (*SCHEMAS, RUNS)]
    for folder in (dataset.path, *kinds):
        yield from (path for path in _plain(folder) if not path.is_dir() and path.name != METADATA)
    for folder in _plain(dataset.path):
        if folder not in kinds:
            yield from (folder / name for name in _names_below(folder))
    for info in artifacts:
        if info.state != "complete":
            arrays = array_files(info.kind).pattern
            files = re.compile(rf"{re.escape(MANIFEST)}|{SECTIONS}/[^/]+\.json|{arrays}")
            yield from (info.path / name for name in _names_below(info.path) if not files.fullmatch(name))
    for folder in _plain(dataset.runs_path):
        if folder.is_dir() and folder.name not in dataset.runs():
            yield from unknown_files_of_run(folder)


def unknown_files_of_run(folder: Path) -> Iterator[Path]:
    """Files in the folder of a run that gnnloom and its loggers did not write."""
    for name in _names_below(folder):
        is_log = _LOGGED.fullmatch(name) is not None and not name.lower().endswith(_CODE)
        if not is_log and not _RUN.fullmatch(name):
            yield folder / name


def _plain(folder: Path) -> list[Path]:
    return sorted(folder.glob("[!.]*"))


def _names_below(folder: Path) -> Iterator[str]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (
            (Path(where) / name).relative_to(folder).as_posix() for name in sorted(names) if not name.startswith(".")
        )
