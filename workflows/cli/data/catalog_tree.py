"""`gnnloom catalog tree`, `lineage` and `du`: artifacts and arrays, their inputs, and their size on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click
from rich.tree import Tree

from gnnloom.storage import Dataset
from gnnloom.storage.artifacts.artifact_info import ArtifactInfo
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.upkeep.lineage import Node
from gnnloom.workflows.cli.terminal.options import current_catalog, existing_catalog, json_option
from gnnloom.workflows.cli.terminal.output import show_json, show_rows
from gnnloom.workflows.cli.terminal.screen import Styled, console, text
from gnnloom.workflows.formatting import readable_bytes

#: Arrays of one artifact that the tree shows; it only counts the others.
_SHOWN_ARRAYS = 12


@click.command("tree")
@click.argument("name", required=False)
@click.option("--all", "show_all", is_flag=True, help="Show every array, however many there are.")
@json_option
def tree_command(name: str | None, show_all: bool) -> None:
    """Show all datasets, or only NAME, as a tree of artifacts and arrays with shape, dtype and dimensions.

    \b
    Example:
      gnnloom catalog tree web
    """
    catalog = existing_catalog()
    datasets = [catalog[name]] if name else list(catalog.datasets())
    content = {dataset.name: [_artifact_content(info) for info in dataset.artifacts()] for dataset in datasets}
    if show_json({"catalog": str(catalog.root), "datasets": content}):
        return
    tree = Tree(text(("bold", str(catalog.root))))
    for dataset in datasets:
        _add_dataset(tree, dataset, show_all)
    console().print(tree)


def _artifact_content(info: ArtifactInfo) -> dict[str, Any]:
    arrays, problem = {}, None
    try:
        # Only a complete artifact has a manifest to read.
        for path, record in Artifact(info.path).records.items() if info.state == "complete" else ():
            arrays[path] = {"shape": list(record.shape), "dtype": record.dtype, "dims": list(record.dims)}
    except GnnloomError as error:
        problem = str(error)
    return {**artifact_row(info), "arrays": arrays, "problem": problem}


def artifact_row(info: ArtifactInfo) -> dict[str, Any]:
    """The entries of an artifact that every listing prints."""
    known = {"kind": info.kind, "key": info.key, "state": info.state, "parameters": info.parameters}
    return {**known, "bytes": info.stored_bytes()}


def _add_dataset(tree: Tree, dataset: Dataset, show_all: bool) -> None:
    branch = tree.add(text(("bold cyan", dataset.name), f"  {readable_bytes(dataset.stored_bytes())}"))
    for info in dataset.artifacts():
        size = f"  {readable_bytes(info.stored_bytes())}"
        leaf = branch.add(text(f"{info.kind}/", ("dim", info.key), size, _state(info.state)))
        content = _artifact_content(info)
        _add_arrays(leaf, content["arrays"], show_all)
        if content["problem"]:
            leaf.add(text(("red", content["problem"])))
    if dataset.runs():
        runs = branch.add("runs")
        for run in dataset.runs():
            runs.add(text(run))


def _state(state: str) -> Styled:
    return "yellow", "" if state == "complete" else f"  {state}"


def _add_arrays(leaf: Tree, arrays: Mapping[str, Any], show_all: bool) -> None:
    shown = list(arrays.items())[: len(arrays) if show_all else _SHOWN_ARRAYS]
    for path, array in shown:
        dims = ", ".join(f"{dim}: {size:,}" for dim, size in zip(array["dims"], array["shape"], strict=True))
        leaf.add(text(f"{path}  ", ("green", array["dtype"]), ("dim", f"  ({dims})")))
    if len(shown) < len(arrays):
        leaf.add(text(("dim", f"... {len(arrays) - len(shown)} more; --all shows them")))


@click.command("lineage")
@click.argument("name")
@json_option
def lineage_command(name: str) -> None:
    """Show the inputs of every artifact and run of dataset NAME, back to the source files.

    \b
    Example:
      gnnloom catalog lineage web
    """
    nodes = current_catalog()[name].lineage()
    if show_json({"dataset": name, "nodes": [node.to_json() for node in nodes.values()]}):
        return
    tree = Tree(text(("bold", name)))
    for node in nodes.values():
        # Everything else appears below its inputs.
        if not node.inputs:
            _add_node(tree, node, nodes, "")
    console().print(tree)


def _add_node(tree: Tree, node: Node, nodes: Mapping[str, Node], above: str) -> None:
    """Add a node and everything made from it. A node with several inputs appears below each input."""
    # The tree shows a node below one of its inputs; the node's line names the others.
    others = sorted(set(node.inputs.values()) - {above})
    sources = "".join(f"  {source} {key[:24]}" for source, key in node.sources.items())
    more = f"  with {', '.join(others)}" if above and others else ""
    known = {name: value for name in _SHOWN_PARAMETERS if (value := node.parameters.get(name)) not in (None, "")}
    made = "  " + ", ".join(f"{name}={value}" for name, value in known.items())
    parts = ("cyan", node.name), _state(node.state), ("green", sources), made, ("dim", more)
    branch = tree.add(text(*parts))
    for output in node.outputs:
        _add_node(branch, nodes[output], nodes, node.name)


#: Parameters that the lineage shows.
_SHOWN_PARAMETERS = (
    "type", "undirected", "self_loops", "parts", "method", "model", "layout", "grid", "permutation", "ranks",
    "algorithm",
)  # fmt: skip


@click.command("du")
@click.argument("name", required=False)
@json_option
def du_command(name: str | None) -> None:
    """Show the disk space of each artifact and run of all datasets, or of NAME, and how much of it is temporary files.

    \b
    Example:
      gnnloom catalog du
      gnnloom catalog du web
    """
    catalog = existing_catalog()
    found = [catalog[name]] if name else list(catalog.datasets())
    rows = [{"dataset": dataset.name, **asdict(usage)} for dataset in found for usage in dataset.disk_usage()]
    total = sum(row["bytes"] for row in rows)
    if show_json({"catalog": str(catalog.root), "bytes": total, "items": rows}):
        return
    rows.sort(key=lambda row: (row["dataset"], -row["bytes"]))
    lines = [(f"{row['dataset']}/{row['kind']}/{row['key']}".rstrip("/"), row) for row in rows]
    show_rows(
        ("path", "size", "scratch"),
        [
            *((what, readable_bytes(row["bytes"]), _scratch(row["scratch_bytes"])) for what, row in lines),
            ("total", readable_bytes(total), _scratch(sum(row["scratch_bytes"] for row in rows))),
        ],
        title=f"catalog {catalog.root}",
    )


def _scratch(count: int) -> str:
    return readable_bytes(count) if count else "-"
