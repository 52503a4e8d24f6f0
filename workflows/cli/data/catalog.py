"""`gnnloom catalog`: list, verify and remove stored data."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from gnnloom.storage import Catalog, Dataset, Graph, TypedGraph
from gnnloom.storage.artifacts.artifact_info import ArtifactInfo
from gnnloom.storage.differences import in_words
from gnnloom.storage.errors import CorruptError, GnnloomError, IncompleteError, InputError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.runs.figures import shown_epoch
from gnnloom.storage.runs.run import Run
from gnnloom.storage.wording import counted
from gnnloom.workflows.cli.data.catalog_files import (
    export_command,
    gc_command,
    import_command,
    part_command,
    pull_command,
    push_command,
)
from gnnloom.workflows.cli.data.catalog_tree import artifact_row, du_command, lineage_command, tree_command
from gnnloom.workflows.cli.terminal.options import current_catalog, existing_catalog, json_option, split_run
from gnnloom.workflows.cli.terminal.output import show, show_json, show_rows
from gnnloom.workflows.cli.terminal.progress import shown_progress
from gnnloom.workflows.cli.terminal.screen import say
from gnnloom.workflows.formatting import readable, readable_bytes
from gnnloom.workflows.report.type_tables import (
    LINK_TITLES,
    RELATION_TITLES,
    TYPE_TITLES,
    data_of_types,
    relation_links,
    relation_rows,
    type_rows,
    types_json,
)

if TYPE_CHECKING:
    from gnnloom.storage.checks.verify import Finding


@click.group("catalog")
def catalog_command() -> None:
    """List, show, verify, move and remove datasets and their artifacts.

    \b
    Example:
      gnnloom catalog ls
      gnnloom catalog show web
    """


for _command in (
    tree_command,
    lineage_command,
    du_command,
    gc_command,
    export_command,
    import_command,
    push_command,
    pull_command,
    part_command,
):
    catalog_command.add_command(_command)


@catalog_command.command("ls")
@json_option
def ls_command() -> None:
    """List the datasets.

    \b
    Example:
      gnnloom catalog ls --json
    """
    catalog = existing_catalog()
    rows = [_dataset_row(catalog, name) for name in catalog]
    if show_json({"catalog": str(catalog.root), "datasets": rows}):
        return
    show_rows(
        ("dataset", *_MEASURES.values()),
        [(row["name"], *(readable(name, row[name]) for name in _MEASURES)) for row in rows],
        title=f"catalog {catalog.root}",
    )
    for problem in (row["problem"] for row in rows if row["problem"]):
        say(problem)


#: Figures that `ls` prints for a dataset, and their column titles.
_MEASURES = {
    "vertices": "vertices",
    "nnz": "nonzeros",
    "artifacts": "artifacts",
    "runs": "runs",
    "bytes": "size",
    "changed": "last change",
}


def _dataset_row(catalog: Catalog, name: str) -> dict[str, Any]:
    """Return the figures of a dataset; unreadable figures are None, and ``problem`` gives the reason."""
    row: dict[str, Any] = {"name": name, **dict.fromkeys(_MEASURES), "problem": None}
    try:
        dataset = catalog[name]
        row |= {"artifacts": len(dataset.artifacts()), "runs": len(dataset.runs()), "bytes": dataset.stored_bytes()}
        # Time at which the newest artifact or run was made or began to change, in local time.
        made = [dataset.path, *(info.path for info in dataset.artifacts()), *map(dataset.run_path, dataset.runs())]
        changed = time.localtime(max(path.stat().st_mtime for path in made))
        row["changed"] = time.strftime("%Y-%m-%d %H:%M", changed)
        for info in dataset.ingested_graphs():
            if info.state == "complete":
                graph = (TypedGraph if info.is_typed else Graph)(Artifact(info.path))
                return row | {"vertices": graph.num_vertices, "nnz": graph.nnz}
    # A damaged dataset must not hide the others.
    except (GnnloomError, OSError) as error:
        row["problem"] = str(error)
    return row


@catalog_command.command("show")
@click.argument("name")
@json_option
def show_command(name: str) -> None:
    """Show the artifacts of dataset NAME (key, state, parameters, size) and its runs (state, scores, predictions).

    \b
    Example:
      gnnloom catalog show web --json
    """
    dataset = current_catalog()[name]
    artifacts = [_artifact_row(dataset, info) for info in dataset.artifacts()]
    runs = [_run_row(Run.open(dataset, run)) for run in dataset.runs()]
    problems = {row["key"]: row["problem"] for row in artifacts}
    if show_json({"dataset": name, "path": str(dataset.path), "artifacts": artifacts, "runs": runs}):
        return
    show_rows(
        ("artifact", "state", "parameters", "size"),
        [
            (f"{row['kind']}/{row['key']}", row["state"], text, readable_bytes(row["bytes"]))
            for row, text in zip(artifacts, _descriptions(artifacts), strict=True)
        ],
        title=f"dataset {name}",
    )
    for info in dataset.ingested_graphs():
        if info.state == "complete" and info.is_typed and not problems.get(info.key):
            graph = TypedGraph(Artifact(info.path))
            show_rows(TYPE_TITLES, type_rows(graph, data_of_types(dataset, info.key)))
            show_rows(RELATION_TITLES, relation_rows(graph))
    if rows := relation_links(dataset):
        show_rows(LINK_TITLES, rows)
    for problem in (row["problem"] for row in [*artifacts, *runs] if row["problem"]):
        say(problem)
    if runs:
        show_rows(
            ("run", "state", "epochs", "scores"),
            [(row["run"], row["state"], _epochs(row), _scores(row)) for row in runs],
        )
    for row in runs:
        if row["predictions"]:
            say(f"predictions of {row['run']}: {row['predictions']}")


#: Prefixes of the names of the shown scores.
_SCORES = {"val", "test"}


def _run_row(run: Run) -> dict[str, Any]:
    """Return the state of a run; unreadable figures are None, and ``problem`` gives the reason."""
    row: dict[str, Any] = {"run": run.name, "state": run.state}
    row |= {"epochs": None, "of": None, "task": None, "scores": {}, "scored_epoch": None, "predictions": None}
    row["problem"] = None
    try:
        lines = run.metrics()
        config = run.config()
        row |= {"epochs": len(lines), "of": config.get("epochs"), "task": config.get("task")}
        # For an unfinished run, the figures of the last evaluation.
        evaluated = [line for line in lines if not _SCORES.isdisjoint(name.partition("_")[0] for name in line)]
        last: Mapping[str, Any] = (evaluated or [{}])[-1]
        figures = run.result() if run.is_finished else last
        # Results of earlier versions do not name the epoch, which was the last evaluated one.
        row["scored_epoch"] = figures.get("checkpoint_epoch", shown_epoch(last) if last else None)
        row["scores"] = {
            name: value for name, value in figures.items() if name.partition("_")[0] in _SCORES and value is not None
        }
    except GnnloomError as error:
        row["problem"] = str(error)
    if run.predictions_path.is_dir():
        row["predictions"] = str(run.predictions_path)
    return row


def _epochs(row: dict[str, Any]) -> str:
    """The finished epochs and the planned number; nothing for a run that was trained elsewhere."""
    if row["state"] == "transferred":
        return ""
    return readable("epochs", row["epochs"]) if row["epochs"] == row["of"] else f"{row['epochs']} of {row['of']}"


def _scores(row: dict[str, Any]) -> str:
    """The scores, and their epoch if it is not the last one."""
    # Listings of datasets have no scores.
    from gnnloom.trainer.tasks.registry import AUTO, TASKS
    from gnnloom.workflows.cli.terminal.scores import scores_by_figure

    scores, task = row["scores"], TASKS.get(row["task"] or AUTO)
    if task is not None and task.on_pairs:
        # Only the most important score: such tasks report many.
        shown = [f"{figure} {text}" for figure, text in list(scores_by_figure(task, scores).items())[:1]]
    else:
        shown = [f"{name.replace('_', ' ')} {readable(name, value)}" for name, value in scores.items()]
    epoch = f" after epoch {row['scored_epoch']:,}" if shown and row["scored_epoch"] != row["epochs"] else ""
    return ", ".join(shown) + epoch


def _artifact_row(dataset: Dataset, info: ArtifactInfo) -> dict[str, Any]:
    row = artifact_row(info) | {"problem": None}
    if info.state == "complete":
        try:
            artifact = Artifact(info.path)
            if info.is_typed:
                row |= types_json(TypedGraph(artifact), data_of_types(dataset, info.key))
        except GnnloomError as error:
            return row | {"problem": str(error)}
        names = ("digest", "inputs", "sizes", "facts", "measured")
        row |= {name: getattr(artifact, name) for name in names}
    return row


def _descriptions(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Describe artifacts by their parameters and, if these are equal, by their inputs."""
    texts = [_describe(row) for row in rows]
    alike = Counter((row["kind"], text) for row, text in zip(rows, texts, strict=True))
    for row, text in zip(rows, texts, strict=True):
        made_from = in_words(row.get("inputs", {})) if not text or alike[row["kind"], text] > 1 else ""
        yield ", ".join(filter(None, (text, made_from)))


def _describe(row: dict[str, Any]) -> str:
    """Return the parameters of an artifact that are single values, names or sizes; or a note that it is damaged."""
    if row["problem"]:
        return "damaged"
    texts = []
    for name, value in row["parameters"].items():
        if isinstance(value, list) and all(isinstance(item, int) for item in value):
            texts.append(f"{name}={'x'.join(map(str, value))}")
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            texts.append(f"{name}={' '.join(value)}")
        elif not isinstance(value, dict | list):
            texts.append(f"{name}={value}")
    return ", ".join(texts)


@catalog_command.command("verify")
@click.argument("name")
@click.option("--quick", is_flag=True, help="Check metadata and digests, but no other invariants.")
@json_option
def verify_command(name: str, quick: bool) -> None:
    """Read everything in dataset NAME and check it against checksums, digests and invariants.

    Graphs: ids sorted and in range, degrees, symmetry. Partitions and labels: values in range. Shards: every vertex on
    exactly one rank, entries that add up to the graph, halos that match what is sent. Zarr metadata that other readers
    rely on. Runs: metrics, result, checkpoints, predictions.

    Exits with code 0 if everything is intact, 3 if something is damaged, 4 if something is incomplete.

    \b
    Example:
      gnnloom catalog verify web
    """
    dataset = current_catalog()[name]
    with shown_progress(compiles=not quick):
        findings = dataset.verify(quick=quick)
    artifacts = [_row(finding, "kind", "key", "arrays") for finding in findings if finding.kind != "runs"]
    runs = [_row(finding, "", "run", "epochs") for finding in findings if finding.kind == "runs"]
    if not show_json({"dataset": name, "artifacts": artifacts, "runs": runs}):
        rows = [
            (
                f"{each.kind}/{each.key}",
                counted(each.read, "epoch" if each.kind == "runs" else "array"),
                each.problem or "intact",
            )
            for each in findings
        ]
        show_rows(("artifact", "read", "state"), rows, title=f"dataset {name}")
    damaged = sum(finding.is_damaged for finding in findings)
    # Printed first, then reported by the exit code.
    if damaged:
        raise CorruptError(f"dataset {name}: damaged artifacts or runs: {damaged} of {len(findings)}")
    if any(finding.problem for finding in findings):
        raise IncompleteError(
            f"dataset {name} has incomplete artifacts; run their stages again, or remove the artifacts"
        )


def _row(finding: Finding, kind: str, key: str, read: str) -> dict[str, Any]:
    named = {kind: finding.kind, key: finding.key, "state": finding.state, read: finding.read}
    return {name: value for name, value in named.items() if name} | {"problem": finding.problem}


@catalog_command.command("rm")
@click.argument("name", metavar="NAME[/RUN]")
@click.option("--artifact", metavar="KIND/KEY", help="Remove only this artifact or run (runs/RUN).")
@click.option("--force", is_flag=True, help="Remove the artifact even if others were made from it.")
@click.option("-y", "--yes", is_flag=True, help="Remove a whole dataset without asking.")
@json_option
def rm_command(name: str, artifact: str | None, force: bool, yes: bool) -> None:
    """Remove dataset NAME, or one of its artifacts or runs: NAME/RUN is run RUN.

    Before the command removes a whole dataset, it lists the artifacts and runs and asks for confirmation; --yes skips
    the question. An artifact that other artifacts were made from is kept unless --force is given. An artifact that is
    being written is always kept.

    \b
    Example:
      gnnloom catalog rm web/first
      gnnloom catalog rm web --artifact shards/0123456789abcdef
      gnnloom catalog rm web --yes
    """
    catalog = current_catalog()
    name, run = split_run(name, None)
    if run is not None:
        if artifact is not None:
            raise click.UsageError(f"{name}/{run} and --artifact {artifact} name different things; give one of them")
        artifact = f"runs/{run}"
    if artifact is None:
        if not yes:
            _ask_to_remove(catalog[name])
        catalog.remove(name)
    else:
        kind, separator, key = artifact.partition("/")
        if not separator:
            raise InputError(f"--artifact {artifact!r}: expected KIND/KEY, as listed by `gnnloom catalog show {name}`")
        catalog[name].remove_artifact(kind, key, force=force)
    removed = name if artifact is None else f"{name}/{artifact}"
    show({"removed": removed}, title="removed")


def _ask_to_remove(dataset: Dataset) -> None:
    """List the contents of a dataset and ask whether to remove it; exit if the answer is no, or nobody can be asked.

    On standard error, because the answer to --json is on standard output.
    """
    if not _is_terminal():
        raise click.UsageError(
            f"this removes dataset {dataset.name} with {_counted(dataset)}; pass --yes to remove it without being asked"
        )
    rows = [(f"{usage.kind}/{usage.key}", readable_bytes(usage.bytes)) for usage in dataset.disk_usage() if usage.key]
    show_rows(("artifact or run", "size"), rows, title=f"dataset {dataset.name}", on_stderr=True)
    click.confirm(f"Remove dataset {dataset.name} with {_counted(dataset)}?", abort=True, err=True)


def _counted(dataset: Dataset) -> str:
    counts = {"artifact": len(dataset.artifacts()), "run": len(dataset.runs())}
    return " and ".join(counted(count, what) for what, count in counts.items())


def _is_terminal() -> bool:
    return sys.stdin.isatty()
