"""A graph whose ids are names, with several labels per vertex, keeps its names through all commands."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.workflows.cli.main import cli
from gnnloom.workflows.interop import export
from gnnloom.workflows.interop.graph_libraries import vertex_arrays
from support.in_process import answer

EDGES = [("Doe, Jane", "bob"), ("bob", "é"), ("é", "Doe, Jane"), ("zoë", "bob")]
NAMES = ["Doe, Jane", "bob", "zoë", "é"]
LABELS = np.array([[0, 1], [1, -1], [1, 1], [-1, -1]])


def run(catalog: Catalog, *arguments: str) -> Any:
    """Run a command and return its JSON output; raises its error."""
    return answer(catalog.root, *arguments)


@pytest.fixture
def edges(tmp_path: Path) -> str:
    with (tmp_path / "edges.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("from", "to"), *EDGES])
    return str(tmp_path / "edges.csv")


@pytest.fixture
def named(catalog: Catalog, tmp_path: Path, edges: str, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    monkeypatch.setattr(export, "_NUMBERS_AT_ONCE", 2)
    options = ("--header", "--ids", "compact", "--self-loops", "keep", "--workers", "0")
    assert run(catalog, "ingest", "web", edges, *options)["names"]
    np.savetxt(tmp_path / "y.csv", LABELS, fmt="%d", delimiter=",")
    found = run(catalog, "features", "web", "--label", str(tmp_path / "y.csv"), "--workers", "0")
    assert (found["classes"], found["unlabeled"]) == (2, 1)
    return catalog


def rows_of(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_exported_edges_and_labels_hold_the_names(named: Catalog, tmp_path: Path) -> None:
    run(named, "export", "web", "edges", "--out", str(tmp_path / "e.csv"))
    header, *rows = rows_of(tmp_path / "e.csv")
    assert header == ["source", "target"]
    assert {(source, target) for source, target in rows} == set(EDGES)
    run(named, "export", "web", "labels", "--out", str(tmp_path / "y.csv"))
    assert rows_of(tmp_path / "y.csv")[1:] == [
        [name, *map(str, row)] for name, row in zip(NAMES, LABELS.tolist(), strict=True)
    ]
    # Files without text have the numbers of the vertices.
    for suffix in (".npy", ".npz"):
        done = run(named, "export", "web", "edges", "--out", str(tmp_path / f"e{suffix}"))
        assert done["columns"] == ["source", "target"]
    numbers = np.load(tmp_path / "e.npy")
    assert {(NAMES[source], NAMES[target]) for source, target in numbers.tolist()} == set(EDGES)
    with np.load(tmp_path / "e.npz") as arrays:
        np.testing.assert_array_equal(np.column_stack([arrays["source"], arrays["target"]]), numbers)


def test_other_libraries_get_unknown_labels_as_nan(named: Catalog) -> None:
    found = vertex_arrays(named["web"])["y"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.where(LABELS < 0, np.nan, LABELS))


def test_names_without_compact_ids_are_refused_with_the_option_to_use(catalog: Catalog, edges: str) -> None:
    with pytest.raises(InputError, match=r"line 2: .*add `--ids names`"):
        run(catalog, "ingest", "web", edges, "--header", "--workers", "0")


def test_an_undeclared_header_line_is_not_read_as_an_edge(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("a,b\n1,2\n")
    command = ("ingest", "web", str(tmp_path / "e.csv"), "--ids", "compact", "--workers", "0")
    with pytest.raises(InputError, match=r"e\.csv, line 1: .*`--no-header`"):
        run(catalog, *command)
    assert run(catalog, *command, "--no-header")["vertices"] == 4
    (tmp_path / "f.csv").write_text("a,b\n1,2\n")
    of_numbers = ("ingest", "numbers", str(tmp_path / "f.csv"), "--workers", "0")
    with pytest.raises(InputError, match=r"`--header`"):
        run(catalog, *of_numbers)
    assert run(catalog, *of_numbers, "--header")["vertices"] == 3


def test_rows_of_a_table_are_matched_to_vertices_by_name(named: Catalog, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text('name,code\né,3\n"Doe, Jane",1\n')
    named["web"].path.joinpath("vertices").rename(tmp_path / "before")
    found = run(named, "features", "web", "--split", str(tmp_path / "s.csv"), "--by-id", "--workers", "0")
    assert (found["train"], found["test"]) == (1, 1)
    assert named["web"].vertices().split().tolist() == [1, 0, 0, 3]
    result = CliRunner().invoke(cli, ["--catalog", str(named.root), "features", "web", "random", "--by-id"])
    assert result.exit_code == 2
    assert "--by-id cannot be given with random" in result.output
