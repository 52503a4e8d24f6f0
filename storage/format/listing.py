"""Writes the consolidated metadata that Zarr readers use: everything complete below a folder.

A group's ``zarr.json`` may list the metadata of all groups and arrays below it. Zarr then reads no folder: it sees
neither arrays that are still being written nor the files that are not Zarr's (manifests, configurations, locks), about
which it would warn. The list of a dataset is written again whenever an artifact or predictions are added or removed.
Checkpoints come and go while a run trains, so only their run lists them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.disk.groups import METADATA, group_indent, group_metadata, write_group
from gnnloom.storage.disk.locks import locked
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.manifest import MANIFEST
from gnnloom.storage.format.schema import SCHEMAS
from gnnloom.storage.system_errors import OF_ONE_FILE, check_is_of_content

#: Name of the lock that is held while a dataset's list is written.
LISTING_LOCK: Final = ("listing", "zarr")
#: Folder of the runs in a dataset, of the checkpoints in a run, and of the best checkpoint.
RUNS, _CHECKPOINTS, _BEST = "runs", "checkpoint", "checkpoint/best"
#: Folder of the predictions in a run, and of predictions that are being replaced, which count until the new ones have
#: their name.
PREDICTIONS, REPLACED_PREDICTIONS = "predictions", "replaced-predictions"
#: Groups and arrays that a list may have. Reading a longer one would take longer than walking the folders.
MOST_NODES: Final = 20_000

Nodes = dict[str, dict[str, Any]]


def nodes_below(folder: Path, known: Mapping[str, Nodes] | None = None) -> Nodes:
    """Metadata of the groups and arrays below a folder, by path; hidden folders are left out.

    Args:
        known: nodes below some of its folders, by name, which are not read again.
    """
    nodes: Nodes = {}
    top = os.fspath(folder)
    beginning = os.path.join(top, "")  # noqa: PTH118 - a run lists its checkpoints often, and pathlib takes time
    for where, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if METADATA not in names or where == top:
            continue
        content = read_json(Path(where, METADATA), sealed=False)
        # The lists of groups within a list are not read by Zarr.
        content.pop("consolidated_metadata", None)
        name = where.removeprefix(beginning).replace(os.sep, "/")
        nodes[name] = content
        if known is not None and name in known:
            nodes |= {f"{name}/{below}": node for below, node in known[name].items()}
            folders.clear()
        elif content.get("node_type") == "array":
            folders.clear()
    return nodes


def complete_groups(folder: Path, arrays: Iterable[str]) -> None:
    """Give every folder between ``folder`` and the arrays below it, given by their paths, the metadata of a group."""
    for parent in sorted({parent for path in arrays for parent in PurePosixPath(path).parents}):
        if not (folder / parent / METADATA).exists():
            write_group(folder / parent, {})


def write_list(folder: Path, known: Mapping[str, Nodes] | None = None) -> Nodes:
    """Write the list of a group from what is below it, and return that; see :func:`nodes_below`."""
    nodes = nodes_below(folder, known)
    _put_list(folder, nodes)
    return nodes


def list_artifact(folder: Path, sections: Iterable[str], num_arrays: int) -> None:
    """Write the list of an artifact or, if that would be too long, of each of its sections.

    Args:
        num_arrays: number of its arrays, a lower bound of the number of nodes.
    """
    if num_arrays <= MOST_NODES:
        write_list(folder)
        if listed_nodes(folder) is not None:
            return
    for section in sections:
        write_list(folder / section)


def _put_list(folder: Path, nodes: Nodes | None, *, durable: bool = False) -> None:
    """Write the list of a group, or remove it if it would be too long.

    Args:
        nodes: metadata by path; None if they are too many.
        durable: return only after the file is on disk.
    """
    path = folder / METADATA
    content = read_json(path, sealed=False) if path.exists() else group_metadata({})
    wanted = {name: value for name, value in content.items() if name != "consolidated_metadata"}
    if nodes is not None and len(nodes) <= MOST_NODES:
        wanted["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": nodes}
    if wanted != content or not path.exists():
        write_json(path, wanted, durable=durable, sealed=False, indent=group_indent(wanted))


def listed_nodes(folder: Path) -> Nodes | None:
    """The nodes that a group lists: no nodes if the list is invalid, None if there is no list."""
    found = read_json(folder / METADATA, sealed=False).get("consolidated_metadata")
    if not isinstance(found, dict):
        return None
    nodes = found.get("metadata")
    return nodes if isinstance(nodes, dict) else {}


def refresh_list(dataset: Path) -> None:
    """Write the lists of a dataset and of its kinds of artifacts, as they are now."""
    # A folder that is not a dataset gets no list: the catalog alone decides which folders are datasets.
    if not (dataset / METADATA).exists():
        return
    # Two stages may finish at the same time. Each writes what it finds under the lock, so the last one finds both.
    with locked(dataset, *LISTING_LOCK):
        for folder, nodes in wanted_lists(dataset).items():
            # Durable: a crash of the machine must not take the file that makes this folder a dataset.
            _put_list(dataset / folder, nodes, durable=folder == ".")


def are_lists_current(dataset: Path) -> bool:
    """Whether the lists of a dataset and of its kinds of artifacts are current."""
    folders = ((dataset / folder, nodes) for folder, nodes in wanted_lists(dataset).items())
    return all((folder / METADATA).exists() and listed_nodes(folder) == nodes for folder, nodes in folders)


def wanted_lists(dataset: Path) -> dict[str, Nodes | None]:
    """Correct lists of a dataset (``.``) and of its kinds of artifacts; None for a list that would be too long.

    They name its complete artifacts, and its runs with their predictions.
    """
    kinds = {kind: _kind_nodes(dataset, kind) for kind in (*SCHEMAS, RUNS) if (dataset / kind).is_dir()}
    whole: Nodes = {kind: group_metadata({}) for kind, nodes in kinds.items() if nodes}
    whole |= {f"{kind}/{name}": node for kind, nodes in kinds.items() for name, node in (nodes or {}).items()}
    lists = {**kinds, ".": None if None in kinds.values() else whole}
    return {folder: None if nodes is None or len(nodes) > MOST_NODES else nodes for folder, nodes in lists.items()}


def _kind_nodes(dataset: Path, kind: str) -> Nodes | None:
    """The nodes of the artifacts of one kind, or of the runs; None if they are too many to read."""
    nodes: Nodes = {}
    finished = sorted(path.parent for path in (dataset / kind).glob(f"[!.]*/{METADATA if kind == RUNS else MANIFEST}"))
    for path in finished:
        # One damaged artifact must not keep the others from being listed; `catalog verify` reports it.
        try:
            content = read_json(path / METADATA, sealed=False)
            listed = content.pop("consolidated_metadata", None)
            # The list would be too long: its sections have lists of their own.
            if listed is None:
                return None
            below = dict(listed["metadata"])
        except (GnnloomError, OSError, LookupError, TypeError, ValueError) as error:
            check_is_of_content(error, path, OF_ONE_FILE)
            continue
        if kind == RUNS:
            below = {name: node for name, node in below.items() if name.partition("/")[0] != _CHECKPOINTS}
        nodes |= {path.name: content, **{f"{path.name}/{name}": node for name, node in below.items()}}
    return nodes


def list_run(run: Path) -> None:
    """Make a run a group that lists its predictions and checkpoints, and list it in its dataset."""
    write_list(run)
    refresh_list(run.parents[1])


def list_checkpoints(folder: Path, known: Mapping[str, Nodes] | None = None) -> None:
    """Make the folder of a run's checkpoints a group that lists them, and list them in the run.

    Args:
        known: nodes below some of the checkpoints, by name, which are not read again.
    """
    nodes = write_list(folder, known)
    if (folder.parent / METADATA).exists():
        write_list(folder.parent, {folder.name: nodes})


def outdated_run_lists(run: Path) -> list[Path]:
    """Folders of a run whose lists are outdated, inner folders first."""
    inner = [run / name for name in (_BEST, _CHECKPOINTS, PREDICTIONS, REPLACED_PREDICTIONS)]
    folders = [folder for folder in (*inner, run) if (folder / METADATA).exists()]
    return [folder for folder in folders if listed_nodes(folder) not in (None, nodes_below(folder))]


def refresh_run_lists(run: Path) -> None:
    """Write the outdated lists of a run again; called by the process that holds its lock."""
    for folder in outdated_run_lists(run):
        write_list(folder)
