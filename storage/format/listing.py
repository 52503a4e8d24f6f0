"""What Zarr readers are told about a folder: consolidated metadata of everything complete below it.

A group's ``zarr.json`` may list the metadata of all groups and arrays below it. Zarr then reads no folder: it sees
neither arrays that are still being written nor the files that are not Zarr's (manifests, configurations, locks), about
which it would warn. The list of a dataset is written again whenever an artifact or predictions are added or removed.
Checkpoints come and go while a run trains, so only their run lists them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.files import read_json, write_json
from gnnloom.storage.format.groups import METADATA, group_metadata, write_group
from gnnloom.storage.format.locks import locked
from gnnloom.storage.format.manifest import MANIFEST
from gnnloom.storage.format.schema import SCHEMAS

#: Name of the lock that is held while a dataset's list is written.
LISTING_LOCK: Final = ("listing", "zarr")
#: Folder of the runs in a dataset, and of the checkpoints in a run.
_RUNS, _CHECKPOINTS = "runs", "checkpoint"
#: Folder of the predictions in a run, and of those that are being replaced: they count until the new ones have their
#: name.
PREDICTIONS, REPLACED_PREDICTIONS = "predictions", "replaced-predictions"
#: Groups and arrays that a list may have. Reading a longer one would take longer than walking the folders.
MOST_NODES: Final = 20_000

Nodes = dict[str, dict[str, Any]]


def nodes_below(folder: Path) -> Nodes:
    """Metadata of the groups and arrays below a folder, by path; hidden folders are left out."""
    nodes: Nodes = {}
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if METADATA not in names or Path(where) == folder:
            continue
        content = read_json(Path(where, METADATA))
        # The lists of groups within a list are not read by Zarr.
        content.pop("consolidated_metadata", None)
        nodes[Path(where).relative_to(folder).as_posix()] = content
        if content.get("node_type") == "array":
            folders.clear()
    return _with_parents(nodes)


def _with_parents(nodes: Nodes) -> Nodes:
    """The same with the groups above every node, which earlier versions did not always write; ordered by path."""
    above = {str(parent) for path in nodes for parent in PurePosixPath(path).parents if str(parent) != "."}
    return dict(sorted({**{path: group_metadata({}) for path in above}, **nodes}.items()))


def complete_groups(folder: Path) -> None:
    """Give every folder between ``folder`` and the arrays below it the metadata of a group."""
    for path, content in nodes_below(folder).items():
        if content.get("node_type") == "group" and not (folder / path / METADATA).exists():
            write_group(folder / path, {})


def write_list(folder: Path, nodes: Mapping[str, Any] | None = None, *, durable: bool = False) -> None:
    """Write the list of a group, or remove it if it would be too long.

    Args:
        nodes: metadata by path; by default, of everything below the folder.
        durable: return only after the file is on disk.
    """
    path = folder / METADATA
    content = read_json(path) if path.exists() else group_metadata({})
    listed = nodes_below(folder) if nodes is None else dict(nodes)
    wanted = {name: value for name, value in content.items() if name != "consolidated_metadata"}
    if len(listed) <= MOST_NODES:
        wanted["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": listed}
    if wanted != content or not path.exists():
        write_json(path, wanted, durable=durable, sealed=False)


def listed_nodes(folder: Path) -> Nodes | None:
    """What the list of a group says; None if it has none."""
    found = read_json(folder / METADATA).get("consolidated_metadata")
    return dict(found.get("metadata", {})) if isinstance(found, dict) else None


def refresh_list(dataset: Path) -> None:
    """Write the lists of a dataset and of its kinds of artifacts, as they are now."""
    # A folder that is not a dataset gets no list: the catalog alone decides which folders are datasets.
    if not (dataset / METADATA).exists():
        return
    # Two stages may finish at the same time. Each writes what it finds under the lock, so the last one finds both.
    with locked(dataset, *LISTING_LOCK):
        nodes = dataset_nodes(dataset)
        for kind in (*SCHEMAS, _RUNS):
            if (dataset / kind).is_dir():
                write_list(dataset / kind, _below(nodes, kind))
        # Durable: a crash of the machine must not take the file that makes this folder a dataset.
        write_list(dataset, nodes, durable=True)


def is_list_current(dataset: Path) -> bool:
    """Whether the list of a dataset says what it should."""
    return listed_nodes(dataset) == dataset_nodes(dataset)


def dataset_nodes(dataset: Path) -> Nodes:
    """What the list of a dataset should say: its complete artifacts, and its runs with their predictions."""
    nodes: Nodes = {}
    for path in _finished(dataset):
        # One damaged artifact must not keep the others from being listed; `catalog verify` reports it.
        try:
            content = read_json(path / METADATA)
            listed = content.pop("consolidated_metadata", None)
            below = dict(listed["metadata"]) if isinstance(listed, dict) else nodes_below(path)
        except (GnnloomError, OSError, LookupError, TypeError, ValueError):
            continue
        prefix = path.relative_to(dataset).as_posix()
        if path.parent.name == _RUNS:
            below = {name: node for name, node in below.items() if name.partition("/")[0] != _CHECKPOINTS}
        nodes |= {prefix: content, **{f"{prefix}/{name}": node for name, node in below.items()}}
    return _with_parents(nodes)


def _finished(dataset: Path) -> Iterator[Path]:
    for kind in SCHEMAS:
        yield from sorted(path.parent for path in (dataset / kind).glob(f"[!.]*/{MANIFEST}"))
    yield from sorted(path.parent for path in (dataset / _RUNS).glob(f"[!.]*/{METADATA}"))


def _below(nodes: Nodes, folder: str) -> Nodes:
    return {name.removeprefix(f"{folder}/"): node for name, node in nodes.items() if name.startswith(f"{folder}/")}


def list_run(run: Path) -> None:
    """Make a run a group that lists its predictions and checkpoints, and list it in its dataset."""
    write_list(run)
    refresh_list(run.parents[1])


def list_checkpoints(folder: Path) -> None:
    """Make the folder of a run's checkpoints a group that lists them, and list them in the run."""
    write_list(folder)
    if (folder.parent / METADATA).exists():
        write_list(folder.parent)


def outdated_run_lists(run: Path) -> list[Path]:
    """Folders of a run whose lists do not say what is there, the inner ones first."""
    # Earlier versions wrote no lists, and a run of theirs gets none.
    inner = [run / name for name in (_CHECKPOINTS, PREDICTIONS, REPLACED_PREDICTIONS)]
    folders = [folder for folder in (*inner, run) if (folder / METADATA).exists()]
    return [folder for folder in folders if listed_nodes(folder) not in (None, nodes_below(folder))]


def refresh_run_lists(run: Path) -> None:
    """Write the outdated lists of a run again; called by who holds its lock."""
    for folder in outdated_run_lists(run):
        write_list(folder)
