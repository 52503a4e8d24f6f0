"""Whether ids are numbers or names is decided once, by the first lines of the files or by the user."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph, project_ingest
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Graph
from gnnloom.storage.errors import InputError

COMPACT, NAMES = IngestOptions(ids="compact"), IngestOptions(ids="names")
#: More lines of numbers than the look at a file reads.
NUMBERS = "".join(f"{number} {number + 1}\n" for number in range(10_000))


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def ingest(catalog: Catalog, name: str, locations: list[str], options: IngestOptions) -> Graph:
    return ingest_graph(catalog.create(name), open_edges(None, locations), options, InProcessCluster())


def test_a_name_after_the_first_lines_is_one_error_that_leaves_nothing_behind(catalog: Catalog, tmp_path: Path) -> None:
    path = write(tmp_path / "e.txt", f"{NUMBERS}7 bob\n")
    with pytest.raises(InputError, match=r"e\.txt, line 10,001:.*`--ids names`"):
        ingest(catalog, "g", [path], COMPACT)
    assert catalog["g"].artifacts() == []
    graph = ingest(catalog, "g", [path], NAMES)
    assert graph.num_vertices == 10_002
    assert graph.original_name(graph.num_vertices - 1) == ["bob"]
    # What would have been decided if the name had come first gives the same bytes.
    first = write(tmp_path / "f.txt", f"0 1\n7 bob\n{NUMBERS}")
    with pytest.raises(InputError, match=r"f\.txt, line 2: .*`--ids names`"):
        ingest(catalog, "f", [first], COMPACT)
    assert ingest(catalog, "f", [first], NAMES).artifact.digest == graph.artifact.digest


def test_names_at_the_beginning_of_any_file_make_names_of_all_ids(catalog: Catalog, tmp_path: Path) -> None:
    paths = [write(tmp_path / "a.txt", NUMBERS), write(tmp_path / "b.txt", "1 2\n2 bob\n")]
    assert ingest(catalog, "g", paths, COMPACT).has_names


def test_ids_that_are_called_names_are_names_whatever_they_look_like(catalog: Catalog, tmp_path: Path) -> None:
    graph = ingest(catalog, "text", [write(tmp_path / "e.txt", "9 10\n10 007\n")], NAMES)
    assert graph.original_name() == ["007", "10", "9"]
    np.save(tmp_path / "e.npy", [[9, 10], [10, 7]])
    assert ingest(catalog, "numpy", [str(tmp_path / "e.npy")], NAMES).original_name() == ["10", "7", "9"]


def test_formats_whose_ids_are_numbers_have_no_names(catalog: Catalog, tmp_path: Path) -> None:
    scipy.io.mmwrite(tmp_path / "e.mtx", scipy.sparse.eye_array(3))
    with pytest.raises(InputError, match=r"format 'mtx':"):
        ingest(catalog, "g", [str(tmp_path / "e.mtx")], NAMES)


@pytest.mark.parametrize("options", [COMPACT, NAMES])
def test_a_first_line_that_may_be_a_header_is_asked_about(
    catalog: Catalog, tmp_path: Path, options: IngestOptions
) -> None:
    paths = [write(tmp_path / "a.csv", "x,y\n1,2\n"), write(tmp_path / "b.csv", "x,y\n")]
    for locations in (paths, paths[:1], [paths[1], paths[0]]):
        with pytest.raises(InputError, match=r"a\.csv, line 1: .* `--header` .* `--no-header`"):
            ingest(catalog, "g", locations, options)
    # A file with one line of names only.
    assert ingest(catalog, "one", paths[1:], options).original_name() == ["x", "y"]


def test_a_projection_decides_as_the_ingest_does(tmp_path: Path) -> None:
    source = open_edges(None, [write(tmp_path / "e.txt", "ann bob\nbob cy\n")])
    assert project_ingest(source, COMPACT, tmp_path, 1, 1 << 30).name_bytes == pytest.approx(11 / 4)
    numbers = open_edges(None, [write(tmp_path / "n.txt", "10 2\n2 3\n")])
    assert project_ingest(numbers, COMPACT, tmp_path, 1, 1 << 30).name_bytes == 0
    assert project_ingest(numbers, NAMES, tmp_path, 1, 1 << 30).name_bytes == pytest.approx(5 / 4)
