"""`--plan` prints a projection and stores nothing; `--codec` reaches the graph; progress is a bar or log lines."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console  # noqa: TID251 - draws on a file

from gnnloom.storage import Catalog
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.meters import PROGRESS, logged
from gnnloom.workflows.cli.main import cli
from gnnloom.workflows.cli.terminal import progress
from support.ogb_folders import write_ogb_binary_folder

RMAT = ("generate", "g", "rmat", "--scale", "12", "--workers", "0")


def invoke(catalog: Catalog, *arguments: str) -> Result:
    result = CliRunner().invoke(cli, ["--catalog", str(catalog.root), *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.slow
def test_a_projection_stores_nothing(catalog: Catalog) -> None:
    plan: dict[str, Any] = json.loads(invoke(catalog, *RMAT, "--plan", "--json").stdout)
    assert (plan["edges"], plan["vertices"], plan["entries"]) == (1 << 16, 1 << 12, 1 << 17)
    assert {"ranges", "blocks", "peak_memory", "spill_bytes", "output_bytes", "disk_free_bytes", "seconds"} <= set(plan)
    assert not catalog.root.exists()
    assert "spill bytes" in invoke(catalog, *RMAT, "--plan").stdout


def test_an_ingest_that_cannot_fit_is_refused(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnloom.pipeline.ingest.projection.DISK_SHARE", 0)
    with pytest.raises(BudgetError, match=r"edges need about .* choose a catalog on a larger disk"):
        invoke(catalog, *RMAT, "--plan")


@pytest.mark.slow
def test_a_result_has_planned_and_measured_figures(catalog: Catalog) -> None:
    found = json.loads(invoke(catalog, *RMAT, "--codec", "small", "--json").stdout)
    assert found["plan"]["edges"] == {"planned": 1 << 16, "measured": 1 << 16}
    assert catalog["g"].graph().artifact.parameters["codec"] == "small"
    catalog.remove("g")
    assert "planned" in invoke(catalog, "-v", *RMAT).stdout
    assert "planned" not in invoke(catalog, *RMAT).stdout


def test_a_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(progress, "Console", lambda **_: Console(file=screen, force_terminal=True, width=100))
    with progress.shown_progress():
        list(logged("scatter", [1_000_000] * 4, 4))
    assert "scatter" in screen.getvalue()
    assert "4/4" in screen.getvalue()
    assert not PROGRESS.handlers


def test_a_log_shows_lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnloom.storage.meters.INTERVAL", 0.0)
    monkeypatch.setattr(logging.getLogger("gnnloom"), "propagate", True)
    with progress.shown_progress():
        list(logged("sort", [5, 5], 2))
    # Several handlers may record the same line.
    lines = list(dict.fromkeys(record.getMessage().split(",")[0] for record in caplog.records))
    assert lines == ["sort: 1 of 2 tasks", "sort: 2 of 2 tasks"]


def test_the_plan_of_an_ingest_counts_the_vertex_data_that_come_along(catalog: Catalog, tmp_path: Path) -> None:
    folder, counted = write_ogb_binary_folder(tmp_path / "raw"), list[int]()
    for store in ("float32", "float16"):
        found = invoke(catalog, "ingest", "g", str(folder), "--plan", "--store", store, "--json")
        counted.append(json.loads(found.stdout)["vertex_bytes"])
    # Four features, a label of 4 bytes and a split of one, of thirty vertices.
    assert counted == [30 * (4 * 4 + 5), 30 * (4 * 2 + 5)]
    assert "vertex bytes" in invoke(catalog, "ingest", "g", str(folder), "--plan").stdout
