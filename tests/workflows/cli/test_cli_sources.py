"""`gnnloom ingest`, `generate` and `features` accept every format and generator and refuse options of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.workflows.cli.main import cli
from support.edge_formats import FORMATS
from support.in_process import answer


def run(catalog: Catalog, *arguments: str) -> Any:
    """Run a command and return the JSON that it prints; its error is raised."""
    return answer(catalog.root, *arguments, "--workers", "0")


def usage_error(catalog: Catalog, *arguments: str) -> str:
    result = CliRunner().invoke(cli, ["--catalog", str(catalog.root), *arguments])
    assert result.exit_code == 2
    return result.output


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_can_be_ingested(tmp_path: Path, catalog: Catalog, name: str) -> None:
    format_name, options, _, _, write = FORMATS[name]
    source, target = np.arange(9), np.arange(1, 10)
    location = write(tmp_path, source, target, None, 10)
    arguments = ["--packed"] if options else []
    found = run(catalog, "ingest", "some", location, "--format", format_name, *arguments, "--self-loops", "keep")
    assert (found["vertices"], found["nnz"], found["edges_in"]) == (10, 9, 9)
    assert ("features" in found) == (name == "planetoid")
    assert np.array_equal(catalog["some"].graph().to_scipy().toarray(), np.eye(10, k=-1))


@pytest.mark.slow
def test_columns_of_a_parquet_file_can_be_named(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "calls.parquet"
    pq.write_table(pa.table({"time": ["a", "b"], "callee": [1, 2], "caller": [0, 1], "minutes": [2.5, 1]}), path)
    found = run(catalog, "ingest", "calls", str(path), "--columns", "caller,callee,minutes")
    assert found["weighted"]
    with pytest.raises(InputError, match="has no option packed; it has weights, times, columns"):
        run(catalog, "ingest", "other", str(path), "--packed")


def test_generated_graphs_are_undirected_by_default(catalog: Catalog) -> None:
    assert run(catalog, "generate", "kron", "rmat", "--scale", "7", "--edge-factor", "4")["symmetric"]
    kron: Any = catalog["kron"].graph().to_scipy()
    assert (kron != kron.T).nnz == 0
    directed = run(catalog, "generate", "arcs", "rmat", "--scale", "7", "--edge-factor", "4", "--directed")
    assert not directed["symmetric"]
    assert directed["edges_in"] == 4 * 128
    roads = run(catalog, "generate", "roads", "lattice", "--size", "4x5x6", "--shortcuts", "0.5", "--scramble")
    assert roads["vertices"] == 120
    assert "features" not in roads
    assert run(catalog, "features", "roads", "random", "--dim", "3")["features"] == 3


def test_options_of_another_model_are_refused(catalog: Catalog) -> None:
    assert "--dim is an option of sbm, not of rmat" in usage_error(catalog, "generate", "a", "rmat", "--dim", "3")
    assert "--scale is an option of rmat, not of sbm" in usage_error(catalog, "generate", "a", "sbm", "--scale", "3")
    for size in ("5", "5x0", "axb", "2x2x2x2"):
        assert "sizes with x between them" in usage_error(catalog, "generate", "a", "lattice", "--size", size)


def test_features_come_from_tables(tmp_path: Path, catalog: Catalog) -> None:
    run(catalog, "generate", "grid", "lattice", "--size", "2x3")
    feature = np.arange(12.0).reshape(6, 2)
    pq.write_table(pa.table({"a": feature[:, 0], "b": feature[:, 1]}), tmp_path / "x.parquet")
    (tmp_path / "y.csv").write_text("0\n1\n2\n-1\n1\n0\n")
    found = run(
        catalog, "features", "grid", "--feature", str(tmp_path / "x.parquet"), "--label", str(tmp_path / "y.csv")
    )
    assert (found["features"], found["classes"], found["unlabeled"]) == (2, 3, 1)
    assert np.array_equal(catalog["grid"].vertices().feature(0, 6), feature)
