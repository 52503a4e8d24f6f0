"""The bytes of a sorted matrix depend on its edges alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import coo_array

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.external_sort.spill import KeyForm
from gnnloom.pipeline.matrix_sort import blocks as row_blocks
from gnnloom.pipeline.matrix_sort import sort_plan, spilled
from gnnloom.pipeline.matrix_sort.bucket_sort import sort_edges
from gnnloom.pipeline.matrix_sort.sort_plan import SortOptions, SortSizes
from gnnloom.pipeline.shuffle import plan
from gnnloom.pipeline.shuffle.run_list import LaneRuns
from gnnloom.pipeline.sources.source import EdgeSource
from gnnloom.pipeline.tasks.cluster import DEFAULT_MEMORY, InProcessCluster
from gnnloom.pipeline.tasks.phase import count, temporary_bytes
from gnnloom.storage import Catalog, Graph, TypedGraph
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.matrix.ranges import Span
from support.edge_files import write_edges
from support.scratch import SMALL_LANES

#: So few that spill files are merged.
FEW_SPILLS = replace(SMALL_LANES, spill_files=3)


def sort(
    catalog: Catalog, name: str, source: EdgeSource, options: SortOptions, scratch: Scratch = SMALL_LANES
) -> Graph:
    with ArtifactWriter.begin(catalog.create(name).path, "graph", {}, {}, scratch) as writer:
        matrix = sort_edges(writer, source, options, InProcessCluster())
        return Graph(matrix.commit(symmetric=options.undirected))


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [pytest.param(False, marks=pytest.mark.long), True])
def test_bytes_do_not_depend_on_the_buffer(catalog: Catalog, tmp_path: Path, weighted: bool) -> None:
    rng = np.random.default_rng(1)
    u, v = rng.integers(0, 3000, (2, 20_000))
    v[:7000] = 77  # a hub
    u[:1000], v[:1000] = 5, 6  # many copies of one edge
    source = write_edges(tmp_path / "edges", u, v, rng.random(20_000) if weighted else None)
    scratch = replace(SMALL_LANES, block_entries=17_000)
    large = sort(catalog, "large", source, SortOptions(undirected=True), scratch).artifact.digest
    for capacity in (100, 10_000):
        few = replace(scratch, sorted_entries=capacity)
        small = sort(catalog, f"small-{capacity}", source, SortOptions(undirected=True), few)
        assert small.artifact.digest == large


def test_bytes_do_not_depend_on_how_the_source_is_cut(catalog: Catalog, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    # Ids rise along the source, so that the spill files have buckets of different sizes.
    u, v = np.sort((rng.random((2, 50_000)) ** 8 * (1 << 21)).astype(np.int64))
    options = SortOptions(undirected=True, self_loops="keep")
    digests, scratch = set(), replace(SMALL_LANES, block_entries=20_000)
    for number, (range_edges, chunk_edges) in enumerate([(50_000, 50_000), (7777, 1000), (20_000, 333)]):
        source = write_edges(tmp_path / "edges", u, v, u % 7 + 0.1, range_edges=range_edges, chunk_edges=chunk_edges)
        digests.add(sort(catalog, f"cut-{number}", source, options, scratch).artifact.digest)
    assert len(digests) == 1


@pytest.mark.parametrize("weighted", [False, True])
def test_edges_that_all_have_their_reverse_are_counted(catalog: Catalog, tmp_path: Path, weighted: bool) -> None:
    scratch = replace(SMALL_LANES, block_entries=3000, sorted_entries=700)
    u, v = np.random.default_rng(4).integers(0, 1 << 17, (2, 5000)) // 8
    ends = np.unique(np.stack([np.minimum(u, v), np.maximum(u, v)]), axis=1)
    # Repeated edges are merged before they are compared, and loops do not count.
    u, v = np.concatenate([ends, ends[::-1], ends[:, :9], ends[::-1, :9]], axis=1)
    weight = (np.minimum(u, v) + 1) / 8
    one_more = (np.append(each, end) for each, end in ((u, 7), (v, 16_000), (weight, 1)))
    changes = {
        "equal": (u, v, weight),
        "one less": (u[20:], v[20:], weight[20:]),
        "one more": tuple(one_more),
        **({"other weight": (u, v, weight + (u == u[77]) * (v == v[77]))} if weighted else {}),
    }
    for number, (change, (sources, targets, values)) in enumerate(changes.items()):
        source = write_edges(tmp_path / f"edges-{number}", sources, targets, values if weighted else None)
        graph = sort(catalog, f"g{number}", source, SortOptions(compares_directions=True), scratch)
        assert graph.num_blocks > 2
        expected = 2 * int(np.count_nonzero(ends[0] != ends[1])) if change == "equal" else None
        assert graph.artifact.facts.get("reciprocal_edges") == expected, change


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
    rng, scratch = np.random.default_rng(4), replace(SMALL_LANES, block_entries=20_000)
    # Files with buckets of different sizes, and edges that occur several times, of which the first counts.
    u, v = np.sort((rng.random((2, 20_000)) ** 8 * (1 << 18)).astype(np.int64))
    source = write_edges(tmp_path / "edges", u, v, rng.random(20_000) if weighted else None, range_edges=2300)
    options = SortOptions(undirected=True, merge="first")
    plain = sort(catalog, "plain", source, options, scratch)
    opened: list[int] = []

    def counted(
        files: OpenFiles, lanes: Iterable[LaneRuns], form: KeyForm, units: Span
    ) -> tuple[list[spilled.UnitRows], NDArray[np.int64]]:
        given = list(lanes)
        opened.append(len(given))
        return spilled.unit_rows(files, given, form, units)

    monkeypatch.setattr(row_blocks, "unit_rows", counted)
    merged = sort(catalog, "merged", source, options, replace(scratch, spill_files=3, merge_entries=capacity))
    assert merged.artifact.digest == plain.artifact.digest
    assert merged.artifact.manifest["arrays"] == plain.artifact.manifest["arrays"]
    # Nine files, merged by three; a block of more than one unit may lie in two spans.
    assert len(opened) > 3
    assert max(opened) <= 2 * 3


@pytest.mark.parametrize("ranges", [3, 9, 12])
def test_the_counted_bytes_are_those_on_disk_at_their_peak(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranges: int
) -> None:
    num_vertices, num_edges = 9000, 60_000
    u, v = np.random.default_rng(4).integers(0, num_vertices, (2, num_edges))
    u[0] = num_vertices - 1
    source = write_edges(tmp_path / "edges", u, v, range_edges=-(-num_edges // ranges))
    on_disk: dict[str, int] = {}

    def publish(files: plan.LevelFiles, records: Sequence[TaskRecord]) -> None:
        found = (LaneRuns.recorded(record, files.shuffle.name) for record in records)
        on_disk[files.folder] = sum(runs.num_bytes for runs in found if runs is not None)
        listed(files, records)

    listed = plan.LevelFiles.publish
    monkeypatch.setattr(plan.LevelFiles, "publish", publish)
    sort(catalog, "g", source, SortOptions(), FEW_SPILLS)
    sizes = SortSizes.even(num_vertices, num_edges, ranges, DEFAULT_MEMORY, undirected=False)
    writer = ArtifactWriter(Path(), "graph", "", scratch=FEW_SPILLS)
    phases = sort_plan.SortPlan(sizes, SortOptions(), DEFAULT_MEMORY, writer=writer).phases()
    # Pass 1 runs alone, to measure, and its merges before the blocks are cut; each level is listed again later.
    written = list(on_disk.values())
    assert [phase.bytes_written for phase in count(phases)][:-2] == pytest.approx(written, rel=0.03)
    assert len(written) == {3: 1, 9: 2, 12: 3}[ranges]
    assert temporary_bytes(phases) == pytest.approx(sum(written[-2:]), rel=0.03)


@pytest.mark.parametrize("shape", [(3, 70_000), (70_000, 3), (5000, 5000)])
def test_a_rectangular_matrix_is_that_of_scipy_however_it_is_sorted(
    catalog: Catalog, tmp_path: Path, shape: tuple[int, int]
) -> None:
    rng = np.random.default_rng(6)
    target, source = (rng.integers(0, size, 20_000) for size in shape)
    # The highest ids do not occur in all ranges, and some not at all.
    target[:9000] //= 2
    weight = rng.integers(1, 100, 20_000).astype(np.float64)
    written = {
        "plain": write_edges(tmp_path / "edges", source, target, weight),
        "cut": write_edges(tmp_path / "edges", source, target, weight, range_edges=2300, chunk_edges=700),
    }
    digests, scratch = set(), replace(SMALL_LANES, block_entries=4000)
    for name, edges in written.items():
        with ArtifactWriter.begin(catalog.create(name).path, "graph", {}, {}, scratch, TYPED_VERSION) as writer:
            options = SortOptions(self_loops="keep")
            matrix = sort_edges(writer, edges, options, InProcessCluster(), shape, "relation/a/")
            facts = {"name": "a", "source": "s", "target": "t", **matrix.facts(symmetric=False)}
            types = [{"name": "s", "first": 0, "count": shape[1]}, {"name": "t", "first": shape[1], "count": shape[0]}]
            whole = {"types": types, "relations": [facts], "nnz": facts["nnz"]}
            artifact = writer.commit(matrix.tasks, {"vertex": sum(shape)}, whole)
        digests.add(artifact.digest)
        scratch = replace(scratch, spill_files=3, sorted_entries=700)
    relation = TypedGraph(artifact).relation("a")
    wanted = coo_array((weight, (target, source)), shape).tocsr()
    wanted.sum_duplicates()
    found = relation.to_scipy()
    assert found.shape == shape
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    assert relation.degree().tolist() == np.diff(wanted.indptr).tolist()
    assert relation.num_blocks > 2
    assert len(digests) == 1
