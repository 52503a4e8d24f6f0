"""Numbers to predict become the same array from every format, and errors name invalid ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.sources.format import open_vertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.checks.verify import verify_dataset
from gnnloom.storage.errors import InputError
from gnnloom.workflows.interop.graph_libraries import vertex_arrays
from support.graphs import random_adjacency, store_graph

N, WIDTH = 40, 2


def target() -> np.ndarray:
    target = np.random.default_rng(0).standard_normal((N, WIDTH)).astype(np.float32)
    target[3], target[5, 0] = np.nan, np.nan
    return target


def write_npy(folder: Path) -> tuple[str, Path]:
    np.save(folder / "y.npy", target())
    return "files", folder / "y.npy"


def write_csv(folder: Path) -> tuple[str, Path]:
    np.savetxt(folder / "y.csv", target(), fmt="%.9g", delimiter=",")
    return "files", folder / "y.csv"


def write_parquet(folder: Path) -> tuple[str, Path]:
    pq.write_table(pa.table({f"t{number}": target()[:, number] for number in range(WIDTH)}), folder / "y.parquet")
    return "files", folder / "y.parquet"


def write_keyed(folder: Path) -> tuple[str, Path]:
    rows = [f"{vertex},{first:.9g},{second:.9g}" for vertex, (first, second) in enumerate(target()) if vertex != 3]
    (folder / "keyed.csv").write_text("\n".join(rows[::-1]) + "\n")
    return "keyed", folder / "keyed.csv"


@pytest.mark.parametrize("write", [write_npy, write_csv, write_parquet, write_keyed])
def test_targets_are_the_same_from_every_format(tmp_path: Path, write: object) -> None:
    assert callable(write)
    dataset = Catalog(tmp_path / "catalog").create("web")
    graph = store_graph(dataset, random_adjacency(N, 90, 0, symmetric=True), symmetric=True)
    kind, path = write(tmp_path)
    vertices = ingest_vertices(dataset, open_vertices(kind, (), {"target": str(path)}, graph), InProcessCluster())
    np.testing.assert_array_equal(vertices.target(), target())
    assert (vertices.num_targets, vertices.num_classes, vertices.artifact.facts["unlabeled"]) == (WIDTH, 0, 1)
    np.testing.assert_array_equal(vertex_arrays(dataset)["y"], target())
    assert [finding.problem for finding in verify_dataset(dataset)] == [None, None]


def test_what_is_no_target_is_named(tmp_path: Path) -> None:
    dataset = Catalog(tmp_path / "catalog").create("web")
    graph = store_graph(dataset, random_adjacency(N, 90, 0, symmetric=True), symmetric=True)
    wrong, labels = target(), np.arange(N) % 3
    wrong[7, 1] = np.inf
    np.save(tmp_path / "wrong.npy", wrong)
    np.save(tmp_path / "label.npy", labels)
    np.save(tmp_path / "price.npy", labels + 0.5)

    def ingest(**files: str) -> None:
        paths = {array: str(tmp_path / f"{name}.npy") for array, name in files.items()}
        ingest_vertices(dataset, open_vertices("files", (), paths, graph), InProcessCluster())

    with pytest.raises(InputError, match=r"wrong\.npy.*row 7:"):
        ingest(target="wrong")
    with pytest.raises(InputError, match=r"labels .* targets "):
        ingest(label="label", target="price")
    # Numbers with a fraction cannot be classes; the message suggests what they are.
    with pytest.raises(InputError, match="give numbers to predict as the target"):
        ingest(label="price")
