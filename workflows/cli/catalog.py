"""`gnnloom catalog`: what is stored, whether it is whole, and getting rid of it."""

from __future__ import annotations

from typing import Any

import click

from gnnloom.storage import Dataset
from gnnloom.storage.artifact import Artifact
from gnnloom.storage.catalog import ArtifactInfo
from gnnloom.storage.errors import CorruptError, GnnloomError, IncompleteError, InputError
from gnnloom.storage.invariants import check_artifact
from gnnloom.storage.run import Run
from gnnloom.storage.run_invariants import check_run
from gnnloom.workflows.cli.catalog_files import export_command, gc_command, import_command, part_command
from gnnloom.workflows.cli.catalog_tree import du_command, lineage_command, tree_command
from gnnloom.workflows.cli.options import current_catalog, json_option
from gnnloom.workflows.cli.output import readable_bytes, show, show_rows


@click.group("catalog")
def catalog_command() -> None:
    """List, show, verify, move and remove datasets and their artifacts.

    \b
    Example:
      gnnloom catalog ls
      gnnloom catalog show web
    """


for _command in (tree_command, lineage_command, du_command, gc_command, export_command, import_command, part_command):
    catalog_command.add_command(_command)


@catalog_command.command("ls")
@json_option
def ls_command(as_json: bool) -> None:
    """List the datasets.

    \b
    Example:
      gnnloom catalog ls --json
    """
    catalog = current_catalog()
    rows = [_dataset_row(catalog[name]) for name in catalog]
    if as_json:
        show({"catalog": str(catalog.root), "datasets": rows}, as_json=True, title="")
        return
    show_rows(
        ("dataset", "vertices", "nonzeros", "artifacts", "runs", "size"),
        [
            (
                row["name"],
                *(f"{row[name]:,}" if row[name] is not None else "-" for name in ("vertices", "nnz")),
                str(row["artifacts"]),
                str(row["runs"]),
                readable_bytes(row["bytes"]),
            )
            for row in rows
        ],
        title=f"catalog {catalog.root}",
    )


def _dataset_row(dataset: Dataset) -> dict[str, Any]:
    graphs = [info for info in dataset.artifacts("graph") if info.state == "complete"]
    graph = dataset.graph(graphs[0].key) if graphs else None
    return {
        "name": dataset.name,
        "vertices": graph.num_vertices if graph else None,
        "nnz": graph.nnz if graph else None,
        "artifacts": len(dataset.artifacts()),
        "runs": len(dataset.runs()),
        "bytes": dataset.stored_bytes(),
    }


@catalog_command.command("show")
@click.argument("name")
@json_option
def show_command(name: str, as_json: bool) -> None:
    """Show the artifacts of dataset NAME: kind, key, state, parameters, size.

    \b
    Example:
      gnnloom catalog show web --json
    """
    dataset = current_catalog()[name]
    artifacts = [_artifact_row(info) for info in dataset.artifacts()]
    if as_json:
        content = {"dataset": name, "path": str(dataset.path), "artifacts": artifacts, "runs": dataset.runs()}
        show(content, as_json=True, title="")
        return
    show_rows(
        ("artifact", "state", "parameters", "size"),
        [
            (f"{row['kind']}/{row['key']}", row["state"], _short(row["parameters"]), readable_bytes(row["bytes"]))
            for row in artifacts
        ],
        title=f"dataset {name}",
    )
    if dataset.runs():
        show_rows(("run",), [(run,) for run in dataset.runs()])


def _artifact_row(info: ArtifactInfo) -> dict[str, Any]:
    row = {
        "kind": info.kind,
        "key": info.key,
        "state": info.state,
        "parameters": info.parameters,
        "bytes": info.stored_bytes(),
    }
    if info.state == "complete":
        artifact = Artifact(info.path)
        row |= {
            "digest": artifact.digest,
            "inputs": artifact.inputs,
            "sizes": artifact.sizes,
            "facts": artifact.facts,
            "measured": artifact.measured,
        }
    return row


def _short(parameters: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in parameters.items() if not isinstance(value, dict | list))


@catalog_command.command("verify")
@click.argument("name")
@click.option("--quick", is_flag=True, help="Digests only: leave out what must hold within and between artifacts.")
@json_option
def verify_command(name: str, quick: bool, as_json: bool) -> None:
    """Read everything in dataset NAME against checksums, digests and what must hold of it.

    Graphs: ids sorted and in range, degrees, symmetry; partitions and labels in range; shards: every vertex on one
    rank, entries that add up, halos that fit what is sent; runs: metrics, checkpoints, predictions.

    Exits with 0 if all is whole, 3 if something is damaged, 4 if something is incomplete.

    \b
    Example:
      gnnloom catalog verify web
    """
    dataset = current_catalog()[name]
    findings = [_verify(dataset, info, quick) for info in dataset.artifacts()]
    runs = [_verify_run(dataset, run) for run in dataset.runs()]
    if as_json:
        show({"dataset": name, "artifacts": findings, "runs": runs}, as_json=True, title="")
    else:
        artifact_rows = [(f"{row['kind']}/{row['key']}", f"{row['arrays']} arrays", _state(row)) for row in findings]
        run_rows = [(f"runs/{row['run']}", f"{row['epochs']} epochs", _state(row)) for row in runs]
        show_rows(("artifact", "read", "state"), artifact_rows + run_rows, title=f"dataset {name}")
    damaged = [row for row in findings + runs if row["problem"] and row["state"] == "complete"]
    if damaged:
        raise CorruptError(f"dataset {name}: {len(damaged)} of {len(findings + runs)} artifacts and runs are damaged")
    if any(row["problem"] for row in findings):
        raise IncompleteError(f"dataset {name} has incomplete artifacts; run their stages again, or remove them")


def _state(row: dict[str, Any]) -> str:
    return row["problem"] or "whole"


def _verify(dataset: Dataset, info: ArtifactInfo, quick: bool) -> dict[str, Any]:
    arrays, problem = 0, None
    try:
        artifact = Artifact(info.path)
        arrays = artifact.verify()
        if not quick:
            check_artifact(dataset, artifact)
    except GnnloomError as error:
        problem = str(error)
    return {"kind": info.kind, "key": info.key, "state": info.state, "arrays": arrays, "problem": problem}


def _verify_run(dataset: Dataset, name: str) -> dict[str, Any]:
    epochs, problem = 0, None
    try:
        epochs = check_run(Run.open(dataset, name))
    except GnnloomError as error:
        problem = str(error)
    return {"run": name, "state": "complete", "epochs": epochs, "problem": problem}


@catalog_command.command("rm")
@click.argument("name")
@click.option("--artifact", metavar="KIND/KEY", help="Remove only this artifact, or run (runs/RUN).")
@json_option
def rm_command(name: str, artifact: str | None, as_json: bool) -> None:
    """Remove dataset NAME, or one of its artifacts or runs.

    \b
    Example:
      gnnloom catalog rm web --artifact shards/0123456789abcdef
      gnnloom catalog rm web
    """
    catalog = current_catalog()
    if artifact is None:
        catalog.remove(name)
    else:
        kind, separator, key = artifact.partition("/")
        if not separator:
            raise InputError(f"--artifact {artifact!r}: expected KIND/KEY as `gnnloom catalog show {name}` lists them")
        catalog[name].remove_artifact(kind, key)
    removed = name if artifact is None else f"{name}/{artifact}"
    show({"removed": removed}, as_json=as_json, title="removed")
