"""The bytes of a sorted matrix depend on its edges alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.external_sort.spill import SpillFile
from gnnloom.pipeline.matrix_sort import blocks as row_blocks
from gnnloom.pipeline.matrix_sort import bucket_sort, merge_runs, sort_plan
from gnnloom.pipeline.matrix_sort.bucket_sort import BucketSort, SortOptions
from gnnloom.pipeline.matrix_sort.counts import SortSizes
from gnnloom.pipeline.sources.source import EdgeSource
from gnnloom.pipeline.tasks.cluster import DEFAULT_MEMORY, InProcessCluster
from gnnloom.storage import Catalog, Graph
from gnnloom.storage.errors import IncompleteError
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.format.files import tree_bytes
from support.edge_files import write_edges


def sort(catalog: Catalog, name: str, source: EdgeSource, options: SortOptions) -> Graph:
    with ArtifactWriter.begin(catalog.create(name).path, "graph", {}, {}) as writer:
        matrix = BucketSort(writer, source, options, InProcessCluster()).run()
        return Graph(matrix.commit(symmetric=options.undirected))


@pytest.mark.usefixtures("small_lanes")
@pytest.mark.parametrize("weighted", [False, True])
def test_bytes_do_not_depend_on_the_buffer(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weighted: bool
) -> None:
    rng = np.random.default_rng(1)
    u, v = rng.integers(0, 9000, (2, 60_000))
    v[:20_000] = 77  # a hub
    u[:3000], v[:3000] = 5, 6  # many copies of one edge
    source = write_edges(tmp_path / "edges", u, v, rng.random(60_000) if weighted else None)
    monkeypatch.setattr(sort_plan, "BLOCK_ENTRIES", 50_000)
    large = sort(catalog, "large", source, SortOptions(undirected=True)).artifact.digest
    for capacity in (300, 30_000):
        monkeypatch.setattr(row_blocks._Block, "_capacity", lambda self, capacity=capacity: capacity)
        small = sort(catalog, f"small-{capacity}", source, SortOptions(undirected=True))
        assert small.artifact.digest == large


def test_bytes_do_not_depend_on_how_the_source_is_cut(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sort_plan, "BLOCK_ENTRIES", 20_000)
    rng = np.random.default_rng(2)
    # Ids rise along the source, so that the spill files have buckets of different sizes.
    u, v = np.sort((rng.random((2, 50_000)) ** 8 * (1 << 21)).astype(np.int64))
    options = SortOptions(undirected=True, self_loops="keep")
    digests = set()
    for number, (range_edges, chunk_edges) in enumerate([(50_000, 50_000), (7777, 1000), (20_000, 333)]):
        source = write_edges(tmp_path / "edges", u, v, u % 7 + 0.1, range_edges=range_edges, chunk_edges=chunk_edges)
        digests.add(sort(catalog, f"cut-{number}", source, options).artifact.digest)
    assert len(digests) == 1


@pytest.mark.usefixtures("small_lanes")
@pytest.mark.parametrize(
    ("weighted", "capacity"),
    [
        (True, 50),
        (False, 1 << 20),
        pytest.param(True, 1 << 20, marks=pytest.mark.long),
        pytest.param(False, 50, marks=pytest.mark.long),
    ],
)
def test_merging_files_before_they_are_sorted_changes_no_byte(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weighted: bool, capacity: int
) -> None:
    monkeypatch.setattr(sort_plan, "BLOCK_ENTRIES", 20_000)
    rng = np.random.default_rng(4)
    # Files with buckets of different sizes, and edges that occur several times, of which the first counts.
    u, v = np.sort((rng.random((2, 20_000)) ** 8 * (1 << 21)).astype(np.int64))
    source = write_edges(tmp_path / "edges", u, v, rng.random(20_000) if weighted else None, range_edges=2300)
    options = SortOptions(undirected=True, merge="first")
    plain = sort(catalog, "plain", source, options)
    opened: dict[str, int] = {}
    files_of = sort_plan.SortPlan.files_of

    def counted(plan: sort_plan.SortPlan, first: int, last: int) -> list[SpillFile]:
        found = files_of(plan, first, last)
        opened[f"{first}-{last}"] = len(found)
        assert all(file.lane.path.startswith("spill/merged-") for file in found)
        return found

    monkeypatch.setattr(merge_runs, "FAN_IN", 3)
    monkeypatch.setattr(merge_runs, "working_memory", lambda _: 64 * capacity)
    monkeypatch.setattr(sort_plan.SortPlan, "files_of", counted)
    merged = sort(catalog, "merged", source, options)
    assert merged.artifact.digest == plain.artifact.digest
    assert merged.artifact.manifest["arrays"] == plain.artifact.manifest["arrays"]
    # Nine files, merged by three; a block of more than one unit may lie in two spans.
    assert len(opened) > 3
    assert max(opened.values()) <= 2 * 3


@pytest.mark.parametrize(("ranges", "copies"), [(3, 1), (9, 2), (12, 3)])
def test_projected_copies_are_those_on_disk_before_the_blocks(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranges: int, copies: int
) -> None:
    num_vertices, num_edges = 9000, 60_000
    u, v = np.random.default_rng(4).integers(0, num_vertices, (2, num_edges))
    u[0] = num_vertices - 1
    source = write_edges(tmp_path / "edges", u, v, range_edges=-(-num_edges // ranges))
    monkeypatch.setattr(merge_runs, "FAN_IN", 3)
    on_disk: list[int] = []

    def counted(work: Path, files: Sequence[SpillFile], kept: Sequence[SpillFile]) -> None:
        on_disk.append(tree_bytes(work / "spill"))
        merge_runs.remove_merged_runs(work, files, kept)

    monkeypatch.setattr(bucket_sort, "remove_merged_runs", counted)
    sort(catalog, "g", source, SortOptions())
    sizes = SortSizes(num_vertices, num_edges, ranges, undirected=False, weighted=False)
    assert sizes.spill_copies(DEFAULT_MEMORY) == copies
    # Files also say where their buckets begin.
    assert on_disk == [pytest.approx(copies * sizes.spilled_bytes, rel=0.01)]


def test_files_that_keep_disappearing_are_an_error(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_edges(tmp_path / "edges", [0, 1], [1, 2])
    monkeypatch.setattr(bucket_sort, "is_scattered", lambda *_: False)
    with pytest.raises(IncompleteError, match="spill: files disappeared while they were in use"):
        sort(catalog, "g", source, SortOptions())
