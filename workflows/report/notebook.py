"""Writes catalogs, datasets and runs as small HTML tables, which notebooks show for objects of the Python API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.errors import GnnloomError, NotFoundError
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.formatting import readable, readable_bytes
from gnnloom.workflows.report.fragments import curve, fact_table, row_table
from gnnloom.workflows.report.type_tables import (
    LINK_TITLES,
    RELATION_TITLES,
    TYPE_TITLES,
    data_of_types,
    relation_links,
    relation_rows,
    type_rows,
)

#: Settings of a run that its table shows.
_SETTINGS = ("model", "algorithm", "ranks", "hidden", "lr")
#: Figures of an epoch that the table omits.
_NOT_SHOWN = {"epoch", "exposed_seconds", "mean_exposed_seconds", "bytes_from_device"}


def catalog_html(catalog: Catalog) -> str:
    """A table of the datasets with their numbers of artifacts and runs."""
    rows = [(dataset.name, str(len(dataset.artifacts())), str(len(dataset.runs()))) for dataset in catalog.datasets()]
    return fact_table("catalog", {"folder": str(catalog.root)}) + row_table(("dataset", "artifacts", "runs"), rows)


def dataset_html(dataset: Dataset) -> str:
    """Tables of the artifacts with their parameters and sizes, of types and relations, and of the runs."""
    rows = [
        (info.kind, info.key, _plain(info.parameters), info.state, readable_bytes(info.stored_bytes()))
        for info in dataset.artifacts()
    ]
    facts = fact_table(f"dataset {dataset.name}", {"folder": str(dataset.path)})
    tables = [row_table(("kind", "key", "parameters", "state", "size"), rows)]
    for key in [info.key for info in dataset.ingested_graphs() if info.state == "complete" and info.is_typed]:
        graph, data = dataset.typed_graph(key), data_of_types(dataset, key)
        tables += [row_table(TYPE_TITLES, type_rows(graph, data)), row_table(RELATION_TITLES, relation_rows(graph))]
    tables += [row_table(LINK_TITLES, relation_links(dataset))]
    runs = [_run_row(Run(dataset.run_path(name))) for name in dataset.runs()]
    tables += [row_table(("run", "state", "epochs", "predictions"), runs)]
    return facts + "".join(tables)


def run_html(dataset: Dataset, run: Run, metrics: Mapping[str, NDArray[Any]]) -> str:
    """A table of the main figures of a run, which need not exist, and the curve of its loss.

    Args:
        metrics: name to (num_epochs,) values of a figure, NaN in epochs without it.
    """
    config = run.config() if run.exists else {}
    facts = {
        "state": run.state if run.exists else "not started",
        "epochs": f"{len(metrics['epoch'])} of {config.get('epochs', '?')}",
    }
    facts |= {name: str(config[name]) for name in _SETTINGS if name in config}
    for name, values in metrics.items():
        measured = values[~np.isnan(values)] if values.dtype.kind == "f" else values
        # Only the sums are shown; a run has a dozen kinds of messages.
        is_kind = name.startswith(("bytes_sent_", "messages_sent_"))
        if name not in _NOT_SHOWN and not is_kind and len(measured):
            facts[name.replace("_", " ")] = readable(name, measured[-1].item())
    facts["predictions"] = _predicted(run) or "none yet; gnnloom.predict(run) makes them"
    loss = metrics.get("loss", np.empty(0))
    title = f"run {dataset.name}/{run.name}"
    return fact_table(title, facts) + curve("loss by epoch", loss[np.isfinite(loss)].tolist())


def _run_row(run: Run) -> tuple[str, ...]:
    """Name, state, number of epochs and predictions of a run."""
    try:
        return run.name, run.state, str(len(run.metrics())), _predicted(run)
    except GnnloomError as error:
        return run.name, "damaged", "", str(error)


def _predicted(run: Run) -> str:
    """Epoch and folder of the predictions of a run; empty if there are none."""
    try:
        found = run.predictions()
    except NotFoundError:
        return ""
    return f"of epoch {found.facts.get('epoch')}, in {found.path}"


def _plain(parameters: Mapping[str, Any]) -> str:
    """The parameters that are single values, as text."""
    return ", ".join(f"{name}={value}" for name, value in parameters.items() if isinstance(value, str | int | float))
