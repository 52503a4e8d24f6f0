"""`--plan` of `ingest` and `generate`: what storing a graph will need."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.ingest.projection import IngestProjection
from gnnloom.pipeline.ingest.stage import IngestOptions, project_ingest
from gnnloom.pipeline.sources.source import EdgeSource
from gnnloom.pipeline.tasks.cluster import available_cores, threads_suffice
from gnnloom.storage import Catalog
from gnnloom.workflows.cli.terminal.output import readable, show, show_rows
from gnnloom.workflows.formatting import readable_estimate, readable_range


def show_plan(
    catalog: Catalog, source: EdgeSource, options: IngestOptions, cluster: ClusterOptions, *, as_json: bool
) -> None:
    """Print what an ingest is projected to need.

    Raises:
        BudgetError: it does not fit.
    """
    workers = available_cores() if cluster.workers is None else max(1, cluster.workers)
    projection = project_ingest(source, options, _existing(catalog.root), workers, cluster.memory)
    # An ingest makes the same choice if no number of workers was asked for.
    if cluster.kind == "local" and cluster.workers is None and threads_suffice(workers, projection.work):
        projection = projection.in_one_process()
    content = projection.to_json() if as_json else _for_people(projection, compact=options.ids != "keep")
    show(content, as_json=as_json, title="plan")


def _for_people(projection: IngestProjection, *, compact: bool) -> dict[str, Any]:
    """The projection with estimated counts as ranges, rather than with more digits than are known."""
    content = projection.to_json()
    if not projection.compressed_bytes:
        del content["compressed_bytes"]
    if not projection.name_bytes:
        del content["name_bytes"]
    low, high = content.pop("edges_low"), content.pop("edges_high")
    content["edges"] = readable_range(low, high)
    shares = (low / max(1, projection.edges), high / max(1, projection.edges))
    if low != high:
        content["entries"] = readable_range(*(projection.entries * share for share in shares))
    if low != high or compact:
        content["vertices"] = readable_estimate(projection.vertices)
    return content


def show_outcome(figures: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the projected figures next to those that an ingest measured."""
    rows = [
        [name.replace("_", " "), *(readable(name, both[which]) for which in ("planned", "measured"))]
        for name, both in figures.items()
    ]
    show_rows(("", "planned", "measured"), rows)


def _existing(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.is_dir())
