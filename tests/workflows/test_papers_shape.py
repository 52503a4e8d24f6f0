"""The benchmark of papers100M's shape works: its folder is OGB's, and its commands train on it."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from benchmarks.papers_folder import CLASSES, FEATURES, Shape, write_papers

from gnnloom.pipeline.sources.format import open_edges, open_vertices
from gnnloom.pipeline.sources.source import VertexSource

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "papers_shape.py"
SHAPE = Shape(1 / 20_000)
STAGES = ("ingest", "partition", "shard", "train")


def rows_of(source: VertexSource, array: str) -> np.ndarray:
    return np.concatenate(list(source.read_rows(array, 0, SHAPE.vertices)))


def test_the_folder_has_the_sizes_the_degrees_and_the_labels_of_the_shape(tmp_path: Path) -> None:
    write_papers(tmp_path / "raw", SHAPE)
    edges = open_edges("ogb-binary", [str(tmp_path / "raw")])
    assert edges.num_vertices() == SHAPE.vertices
    chunks = list(chain.from_iterable(edges.read(span) for span in edges.ranges()))
    source, target = (np.concatenate([getattr(chunk, end) for chunk in chunks]) for end in ("source", "target"))
    assert len(source) == SHAPE.edges
    degree = np.bincount(np.concatenate([source, target]), minlength=SHAPE.vertices)
    # A few vertices have most of the edges, and they are anywhere.
    assert degree.max() > 20 * degree.mean()
    assert abs(degree[: SHAPE.vertices // 2].sum() / degree.sum() - 0.5) < 0.1
    vertices = open_vertices("ogb-binary", [str(tmp_path / "raw")])
    assert (vertices.num_columns("feature"), vertices.num_vertices()) == (FEATURES, SHAPE.vertices)
    label, split = rows_of(vertices, "label"), rows_of(vertices, "split")
    assert np.array_equal(label >= 0, split > 0)
    assert 0.01 < (label >= 0).mean() < 0.02
    assert label.max() < CLASSES


def test_equal_seeds_write_equal_folders(tmp_path: Path) -> None:
    arrays = []
    for number in range(2):
        write_papers(tmp_path / str(number), Shape(1 / 200_000))
        with np.load(tmp_path / str(number) / "raw" / "data.npz") as data:
            arrays.append({name: data[name] for name in data.files})
    first, second = arrays
    assert first.keys() == {"edge_index", "node_feat", "num_nodes_list", "num_edges_list"}
    assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.long
def test_all_commands_work_at_a_tiny_scale(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARK), "--scale", "tiny", "--folder", str(tmp_path), "--epochs", "1", "--keep"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    found = dict(line.split()[1:3] for line in done.stdout.splitlines() if line.startswith("RESULT"))
    assert {"test-accuracy", "epoch", "catalog", *(f"{stage}-time" for stage in STAGES)} <= found.keys()
    (kept,) = tmp_path.iterdir()
    (feature,) = (kept / "catalog" / "papers" / "vertices").glob("*/feature/zarr.json")
    assert json.loads(feature.read_text())["data_type"] == "float16"
