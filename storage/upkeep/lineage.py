"""Traces the inputs and outputs of artifacts, and counts the disk space that they use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gnnloom.storage.artifacts.artifact_info import ArtifactInfo
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.disk.files import tree_bytes
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.artifact import WORK, Artifact
from gnnloom.storage.format.mapped_copy import copies
from gnnloom.storage.format.schema import SCHEMAS
from gnnloom.storage.runs.run import Run


@dataclass(frozen=True)
class Node:
    """An artifact or a run in the lineage of a dataset.

    Attributes:
        name: KIND/KEY, or runs/RUN.
        state: ``complete``, ``incomplete``, or ``gone`` for an input that no longer exists.
        parameters: parameters of the artifact, or configuration of the run.
        inputs: name of each input that is an artifact to its KIND/KEY.
        sources: name of each other input to the fingerprint of its source.
        outputs: KIND/KEY or runs/RUN of everything that was made from it.
    """

    name: str
    state: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "state": self.state,
            "parameters": dict(self.parameters),
            "inputs": dict(self.inputs),
            "sources": dict(self.sources),
            "outputs": list(self.outputs),
        }


def lineage(dataset: Dataset) -> dict[str, Node]:
    """Everything in a dataset by name, inputs before outputs, including inputs that are gone."""
    nodes = {node.name: node for node in map(_artifact_node, dataset.artifacts())}
    nodes |= {node.name: node for node in (_run_node(dataset, run) for run in dataset.runs())}
    outputs: dict[str, list[str]] = {name: [] for name in nodes}
    for node in nodes.values():
        for name in node.inputs.values():
            outputs.setdefault(name, []).append(node.name)
    # An input can be gone: removal with --force keeps the artifacts made from it.
    gone = {name: Node(name, "gone") for name in outputs if name not in nodes}
    return {
        name: Node(node.name, node.state, node.parameters, node.inputs, node.sources, tuple(outputs[name]))
        for name, node in _inputs_first(gone | nodes).items()
    }


def _inputs_first(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """The same nodes, each after its inputs: a graph may be made from links, and these from another graph."""
    found: dict[str, Node] = {}

    def add(name: str) -> None:
        if name not in found:
            for source in nodes[name].inputs.values():
                add(source)
            found[name] = nodes[name]

    for name in nodes:
        add(name)
    return found


def _artifact_node(info: ArtifactInfo) -> Node:
    name = f"{info.kind}/{info.key}"
    try:
        found = Artifact(info.path).inputs if info.state == "complete" else {}
    except GnnloomError:
        found = {}
    # The vertex data of a type are called by the type, too.
    kinds = {name: name.partition("/")[0] for name in found}
    inputs = {name: f"{kinds[name]}/{key}" for name, key in found.items() if kinds[name] in SCHEMAS}
    sources = {name: str(key) for name, key in found.items() if kinds[name] not in SCHEMAS}
    if info.is_typed:
        sources |= _tables(info.parameters)
    return Node(name, info.state, info.parameters, inputs, sources)


def _tables(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Names of the files of each relation and type of a graph, for relations and types that come from files."""
    found: dict[str, str] = {}
    for name, relation in parameters.get("relations", {}).items():
        # A table of several relations has a number for its name.
        what = "relations" if name.startswith("*") else f"relation {name}"
        found[what] = ", ".join(filter(None, (found.get(what), _files(relation.get("table", {})))))
    for name, tables in parameters.get("vertices", {}).items():
        what = "types" if name == "*" else f"type {name}"
        found[what] = ", ".join(filter(None, (_files(each.get("table", each)) for each in tables)))
    return {what: files for what, files in found.items() if files}


def _files(table: Mapping[str, Any]) -> str:
    return ", ".join(file["name"] for file in table.get("files", ()))


def _run_node(dataset: Dataset, name: str) -> Node:
    run = Run(dataset.runs_path / name)
    state = "incomplete" if run.state == "unfinished" else "complete"
    try:
        config, inputs = run.config(), run.inputs()
    except GnnloomError:
        return Node(f"runs/{name}", state)
    # A run also records the inputs of its shards, but the shards list these themselves.
    kinds = (
        ("shards", "links", "propagated") if "shards" in inputs else ("graph", "vertices", "propagated", "transpose")
    )
    # In a graph with types, the vertex data of each type.
    read = {what: f"{kind}/{key}" for what, key in inputs.items() if (kind := what.partition("/")[0]) in kinds}
    return Node(f"runs/{name}", state, config, read)


@dataclass(frozen=True)
class Usage:
    """Bytes on disk of one artifact, run or uncompressed copy: in total, and of its scratch folders."""

    kind: str
    key: str
    bytes: int
    scratch_bytes: int


def disk_usage(dataset: Dataset) -> list[Usage]:
    """Bytes on disk of every artifact, run and uncompressed copy, and of the rest of the folder (kind ``other``)."""
    found = [
        Usage(info.kind, info.key, info.stored_bytes(), tree_bytes(info.path / WORK)) for info in dataset.artifacts()
    ]
    for folder in sorted(path for path in dataset.runs_path.glob("*") if path.is_dir()):
        aside = [path for path in (*folder.glob(".*"), *folder.glob("checkpoint/.*")) if path.is_dir()]
        found.append(Usage("runs", folder.name, tree_bytes(folder), sum(map(tree_bytes, aside))))
    found += [Usage("mapped", path.name, tree_bytes(path), 0) for path in copies(dataset.path)]
    # Files change between the two walks of a dataset in use, so the difference can be negative.
    rest = max(0, dataset.stored_bytes() - sum(usage.bytes for usage in found))
    return [*found, Usage("other", "", rest, 0)]
