"""`gnnloom catalog gc`, `export`, `import`, `push`, `pull` and `part`: garbage, archives, copies, partition files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnnloom.storage.catalog import Dataset
from gnnloom.storage.disk.remote_folder import without_secrets
from gnnloom.storage.wording import counted
from gnnloom.workflows.cli.terminal.options import current_catalog, existing_catalog, json_option, key_option
from gnnloom.workflows.cli.terminal.output import show, show_json, show_rows
from gnnloom.workflows.cli.terminal.progress import shown_progress
from gnnloom.workflows.formatting import readable_bytes

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("gc")
@click.argument("name", required=False)
@click.option("--dry-run", is_flag=True, help="List what would be removed, and exit.")
@json_option
def gc_command(name: str | None, dry_run: bool) -> None:
    """Remove unfinished artifacts, leftover files and artifacts whose inputs are gone, from NAME or all datasets.

    Files that a running command uses are kept.

    \b
    Example:
      gnnloom catalog gc --dry-run
      gnnloom catalog gc web
    """
    catalog = existing_catalog()
    removed = (catalog[name] if name else catalog).collect_garbage(dry_run=dry_run)
    total = sum(item.bytes for item in removed)
    rows = [{"path": str(item.path), "reason": item.reason, "bytes": item.bytes} for item in removed]
    if show_json({"dry_run": dry_run, "bytes": total, "items": rows}):
        return
    verb = "would be removed" if dry_run else "removed"
    show_rows(
        ("path", "reason", "size"),
        [
            *(
                (item.path.relative_to(catalog.root).as_posix(), item.reason, readable_bytes(item.bytes))
                for item in removed
            ),
            (verb, counted(len(removed), "item"), readable_bytes(total)),
        ],
    )


@click.command("export")
@click.argument("name")
@click.argument("file", type=_FILE)
@json_option
def export_command(name: str, file: Path) -> None:
    """Write dataset NAME with its artifacts and runs to one FILE: .tar, .tar.zst or .tar.gz.

    \b
    Example:
      gnnloom catalog export web web.tar
    """
    dataset = current_catalog()[name]
    with shown_progress(compiles=False):
        result = dataset.export(file)
    show({"dataset": name, "file": str(file), **result}, title=f"export of {name}")


@click.command("import")
@click.argument("file", type=_FILE)
@click.option(
    "--as", "name", metavar="NAME", default=None, help="Name of the dataset.  [default: its name when it was exported]"
)
@json_option
def import_command(file: Path, name: str | None) -> None:
    """Add the dataset in FILE, written by `gnnloom catalog export`, to the catalog.

    The command checks the whole file first. It refuses a file that is damaged or is not an exported dataset, and adds
    nothing.

    \b
    Example:
      gnnloom catalog import web.tar --as web-copy
    """
    with shown_progress(compiles=False):
        dataset = current_catalog().import_dataset(file, name)
    show({"dataset": dataset.name, **_added(dataset)}, title=f"import of {file}")


@click.command("push")
@click.argument("name")
@click.argument("url")
@click.option("--replace", is_flag=True, help="Replace a dataset at URL that has artifacts or runs which NAME lacks.")
@json_option
def push_command(name: str, url: str, replace: bool) -> None:
    """Copy dataset NAME with its artifacts and runs to URL: a folder in S3, Google Cloud Storage or elsewhere.

    Files that are already at URL are not sent again: an interrupted push continues, and a later push sends only new
    artifacts and runs. The dataset can be pulled from URL once all of its files are there. S3 needs gnnloom[remote];
    other URLs need the package that fsspec asks for.

    \b
    Example:
      gnnloom catalog push web s3://bucket/datasets/web
    """
    dataset = current_catalog()[name]
    with shown_progress(compiles=False):
        result = dataset.push(url, replace=replace)
    content = {"dataset": name, "url": without_secrets(url), **result}
    show(content, title=f"push of {name}")


@click.command("pull")
@click.argument("url")
@click.option(
    "--as", "name", metavar="NAME", default=None, help="Name of the dataset.  [default: its name when it was pushed]"
)
@json_option
def pull_command(url: str, name: str | None) -> None:
    """Add the dataset at URL, copied there by `gnnloom catalog push`, to the catalog.

    The command compares every file with its digest, and checks the dataset as `gnnloom catalog import` does. An
    interrupted pull continues.

    \b
    Example:
      gnnloom catalog pull s3://bucket/datasets/web
    """
    from gnnloom.storage.upkeep.pull import pull_dataset

    with shown_progress(compiles=False):
        dataset, read = pull_dataset(current_catalog(), url, name)
    content = {"dataset": dataset.name, "url": without_secrets(url), **_added(dataset), "bytes_read": read}
    show(content, title=f"pull of {dataset.name}")


def _added(dataset: Dataset) -> dict[str, Any]:
    """The figures of a dataset that was added to the catalog."""
    counts = {"artifacts": len(dataset.artifacts()), "runs": len(dataset.runs())}
    return {"path": str(dataset.path), **counts, "bytes": dataset.stored_bytes()}


@click.command("part")
@click.argument("name")
@click.option("--parts", type=click.IntRange(min=1), default=None, help="Number of parts of the partition.")
@click.option("--method", default=None, help="Method of the partition, if there are several.")
@click.option("--out", type=_FILE, default=None, help="METIS file to write: line v holds the part of vertex v.")
@click.option("--read", type=_FILE, default=None, help="METIS file to read and store as a partition.")
@key_option("partition")
@key_option("graph")
@json_option
def part_command(
    name: str,
    parts: int | None,
    method: str | None,
    out: Path | None,
    read: Path | None,
    partition: str | None,
    graph: str | None,
) -> None:
    """Write a partition of dataset NAME as a METIS .part.K file, or store one that another program made.

    With --read, the partition has --parts parts; by default, the highest part number in the file plus one.

    \b
    Example:
      gnnloom catalog part web --parts 4 --out web.part.4
      gnnloom catalog part web --read web.part.4
    """
    if (out is None) == (read is None):
        raise click.UsageError("give either --out to write a file, or --read to read one")
    # Imported here because it is slow, and the other commands of this file do not need it.
    from gnnloom.workflows.interop.metis import store_metis_part, write_metis_part

    dataset = current_catalog()[name]
    if out is not None:
        found = dataset.partition(parts, partition, method=method)
        write_metis_part(found, out)
    else:
        if read is None or method is not None or partition is not None:
            raise click.UsageError("--method and --partition choose what --out writes; remove them, as --read is given")
        from gnnloom.pipeline.tasks.cluster import InProcessCluster

        found = store_metis_part(dataset, dataset.graph(graph), read, parts, InProcessCluster())
    content = {
        "dataset": name,
        "file": str(out or read),
        "key": found.artifact.key,
        "parts": found.num_parts,
        "vertices": found.num_vertices,
    }
    show(content, title=f"partition of {name}")
