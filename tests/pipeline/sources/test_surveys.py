"""Large files of formats that state how much they hold are counted in ranges, and then read in ranges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from gnnloom.pipeline.ingest.preparation import planned_ranges, preparation_phases
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph, project_ingest
from gnnloom.pipeline.sources.dimacs import DimacsEdges
from gnnloom.pipeline.sources.matrix_market import MatrixMarketEdges
from gnnloom.pipeline.sources.metis import MetisEdges
from gnnloom.pipeline.sources.ogb import OgbEdges
from gnnloom.pipeline.sources.source import SurveyedSource
from gnnloom.pipeline.tasks.phase import count, total_tasks
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from support.covering import few_of
from support.graphs import random_adjacency
from support.stopping import StoppingCluster

N = 30
ADJACENCY = random_adjacency(N, 120, 1, symmetric=True)
#: From ranges that hold less than a line to one that holds the whole file.
RANGE_BYTES = (2, 7, 64, 300, 1 << 20)


def write_matrix(folder: Path) -> Path:
    path = folder / "edges.mtx"
    scipy.io.mmwrite(path, ADJACENCY, field="pattern", symmetry="symmetric", comment="one\n two")
    return path


def write_metis(folder: Path) -> Path:
    """A file with comments between lines, empty lines for vertices without neighbors, and a blank line after all."""
    loops = int(ADJACENCY.diagonal().astype(bool).sum())
    lines = [f"% a comment\n {N} {(ADJACENCY.nnz - loops) // 2}"]
    for row in range(N):
        near = ADJACENCY.indices[ADJACENCY.indptr[row] : ADJACENCY.indptr[row + 1]] + 1
        lines += ["  % 1 2 3"] * (row % 5 == 0) + [" ".join(map(str, near))]
    path = folder / "edges.graph"
    path.write_text("\n".join([*lines, "% the end", ""]) + "\n")
    return path


def write_dimacs(folder: Path) -> Path:
    """A file of arcs with comments and blank lines between them."""
    path, (row, column) = folder / "edges.gr", ADJACENCY.nonzero()
    lines = [f"a {j + 1} {i + 1} 5\n" + "c 1 2 3\n\n" * int(i % 5 == 0) for i, j in zip(row, column, strict=True)]
    path.write_text(f"c a comment\np sp {N} {ADJACENCY.nnz}\n{''.join(lines)}")
    return path


def write_ogb(folder: Path) -> Path:
    (folder / "raw").mkdir()
    row, column = ADJACENCY.nonzero()
    (folder / "raw" / "edge.csv").write_text("".join(f"{j},{i}\n" for i, j in zip(row, column, strict=True)))
    (folder / "raw" / "num-node-list.csv").write_text(f"{N}\n")
    (folder / "raw" / "num-edge-list.csv").write_text(f"{ADJACENCY.nnz}\n")
    return folder


def open_matrix(path: Path, range_bytes: int) -> Any:
    return replace(MatrixMarketEdges.open([str(path)]), range_bytes=range_bytes, block_bytes=16)


def open_metis(path: Path, range_bytes: int) -> Any:
    return replace(MetisEdges.open([str(path)]), range_bytes=range_bytes, block_bytes=5)


def open_dimacs(path: Path, range_bytes: int) -> Any:
    return replace(DimacsEdges.open([str(path)]), range_bytes=range_bytes, block_bytes=16)


def open_ogb(path: Path, range_bytes: int) -> Any:
    source = OgbEdges.open(str(path))
    return replace(source, edges=replace(source.edges, range_bytes=range_bytes, block_bytes=16))


FORMATS: dict[str, tuple[Callable[[Path], Path], Callable[[Path, int], Any]]] = {
    "mtx": (write_matrix, open_matrix),
    "metis": (write_metis, open_metis),
    "dimacs": (write_dimacs, open_dimacs),
    "ogb": (write_ogb, open_ogb),
}
formats = pytest.mark.parametrize(("write", "opened"), FORMATS.values(), ids=FORMATS)


def surveyed(source: Any) -> Any:
    """Count in this process, in any order of the ranges."""
    while spans := source.surveys():
        found = {span: source.survey(span) for span in reversed(spans)}
        source = source.with_surveys([found[span] for span in spans])
    return source


def edges_of(source: Any) -> list[tuple[int, int]]:
    chunks = [chunk for span in source.ranges() for chunk in source.read(span)]
    return [(int(u), int(v)) for chunk in chunks for u, v in zip(chunk.source, chunk.target, strict=True)]


@formats
@pytest.mark.parametrize("range_bytes", RANGE_BYTES)
def test_ranges_hold_the_edges_of_the_whole_file(
    tmp_path: Path, write: Callable[[Path], Path], opened: Callable[[Path, int], Any], range_bytes: int
) -> None:
    path = write(tmp_path)
    source = opened(path, range_bytes)
    assert isinstance(source, SurveyedSource)
    planned = planned_ranges(source)
    found = surveyed(source)
    assert len(found.ranges()) == planned
    assert (planned > 1) == (range_bytes < 1000)
    row, column = ADJACENCY.nonzero()
    assert sorted(edges_of(found)) == sorted(zip(column.tolist(), row.tolist(), strict=True))
    assert found.identity() == source.identity()


@formats
def test_an_ingest_surveys_and_gives_the_bytes_of_one_range(
    catalog: Catalog, tmp_path: Path, write: Callable[[Path], Path], opened: Callable[[Path, int], Any]
) -> None:
    path = write(tmp_path)
    projection = project_ingest(opened(path, 50), IngestOptions(), tmp_path, 1, 1 << 30)
    clusters = {range_bytes: StoppingCluster() for range_bytes in (50, 1 << 20)}
    graphs = [
        ingest_graph(catalog.create(f"g{range_bytes}"), opened(path, range_bytes), IngestOptions(), cluster)
        for range_bytes, cluster in clusters.items()
    ]
    (counted,) = count(preparation_phases(opened(path, 50)))
    surveys = [name for _, name in clusters[50].ran if name.startswith("survey/")]
    assert counted.tasks <= len(surveys) <= total_tasks([counted])
    assert not count(preparation_phases(opened(path, 1 << 20)))
    assert graphs[0].artifact.digest == graphs[1].artifact.digest
    assert projection.ranges == planned_ranges(opened(path, 50)) > 5
    expected = ADJACENCY.toarray() + np.eye(N) != 0
    assert np.array_equal(graphs[0].to_scipy().toarray() != 0, expected)


@formats
@pytest.mark.parametrize("range_bytes", [50, 1 << 20])
def test_a_file_that_was_cut_off_is_refused_in_ranges_as_well(
    tmp_path: Path, write: Callable[[Path], Path], opened: Callable[[Path, int], Any], range_bytes: int
) -> None:
    path = write(tmp_path)
    file = path / "raw" / "edge.csv" if path.is_dir() else path
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-20]))
    with pytest.raises(InputError, match=r"truncated|lines, expected one for each|in the lines of both"):
        edges_of(surveyed(opened(path, range_bytes)))


@pytest.mark.parametrize(
    ("range_bytes", "text", "reason"),
    few_of(
        [3, 1 << 20],
        [
            pytest.param("4 2\n2\n1 3\n\n4\n", "not every edge is in the lines of both"),
            pytest.param("4 3\n2\n1 3\n2\n\n", "2 edges, the header states 3"),
            pytest.param("4 2\n2\n1 3\n2\n\n\n1\n", "line 7: "),
            pytest.param("4 2\n2\n1 9\n2\n\n", r"line 3: .*the line of vertex 2 of 4\): '1 9'"),
        ],
        together=1,
    ),
)
def test_what_is_wrong_with_a_metis_file_does_not_depend_on_its_ranges(
    tmp_path: Path, text: str, reason: str, range_bytes: int
) -> None:
    path = tmp_path / "edges.graph"
    path.write_text(text)
    with pytest.raises(InputError, match=reason):
        edges_of(surveyed(open_metis(path, range_bytes)))
