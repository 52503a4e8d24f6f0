"""The two directions of an undirected edge are one edge, and its weight is never added to itself in silence."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.external_sort import radix
from gnnloom.pipeline.external_sort.spill import MAX_VERTICES, KeyForm
from gnnloom.pipeline.ingest.stage import IngestOptions, graph_key, ingest_graph
from gnnloom.pipeline.matrix_sort import scatter, sort_plan
from gnnloom.pipeline.matrix_sort.sort_plan import SortOptions, SortSizes
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.sources.source import EdgeSource
from gnnloom.pipeline.tasks.cluster import DEFAULT_MEMORY, InProcessCluster
from gnnloom.pipeline.tasks.phase import count
from gnnloom.storage import Catalog, Graph
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import InputError
from support.covering import examples
from support.edge_files import write_edges
from support.edge_formats import write_mtx, write_parquet, write_pyg, write_text_zst
from support.scratch import SMALL_LANES

#: So few that spill files are merged.
FEW_SPILLS = replace(SMALL_LANES, spill_files=3)

Line = tuple[int, int, float]

#: Edges 0 - 1 and 2 - 1, listed in both directions; 3 - 0, listed once; and a loop, listed twice.
LINES = [(0, 1, 1.5), (1, 0, 1.5), (3, 0, 4.0), (2, 2, 1.0), (1, 2, 0.1), (2, 2, 1.0), (2, 1, 0.1)]
MATRIX = {(0, 1): 1.5, (0, 3): 4.0, (2, 2): 2.0, (1, 2): np.float32(0.1).item()}


def write_numpy(folder: Path, u: np.ndarray, v: np.ndarray, w: np.ndarray, n: int) -> str:
    np.savez(folder / "edges.npz", edge_index=np.stack([u, v]), edge_weight=w)
    return str(folder / "edges.npz")


def write_scipy(folder: Path, u: np.ndarray, v: np.ndarray, w: np.ndarray, n: int) -> str:
    matrix = scipy.sparse.coo_array((w, (u, v)), shape=(n, n))
    scipy.sparse.save_npz(folder / "matrix.npz", matrix.tocsr())
    return str(folder / "matrix.npz")


WRITERS = {
    "text": write_text_zst,
    "parquet": write_parquet,
    "numpy": write_numpy,
    "scipy": write_scipy,
    "pyg": write_pyg,
    "general mtx": write_mtx,
}


def opened(folder: Path, lines: list[Line], source: str) -> EdgeSource:
    folder.mkdir(exist_ok=True)
    u, v = np.array([line[:2] for line in lines], np.int64).T
    path = WRITERS[source](folder, u, v, np.array([line[2] for line in lines], np.float32), int(max(*u, *v)) + 1)
    return open_edges(None, [path], {"weights": True}, undirected=True)


def stored(graph: Graph) -> dict[tuple[int, int], float]:
    """The upper triangle, which must equal the lower one."""
    matrix = graph.to_scipy().tocoo()
    entries = dict(zip(zip(matrix.row.tolist(), matrix.col.tolist(), strict=True), matrix.data.tolist(), strict=True))
    assert entries == {(v, u): weight for (u, v), weight in entries.items()}
    return {(u, v): weight for (u, v), weight in entries.items() if u <= v}


def options(**changed: Any) -> IngestOptions:
    given: dict[str, Any] = {"undirected": True, "self_loops": "keep"} | changed
    return IngestOptions(**given)


@pytest.mark.parametrize("source", WRITERS)
def test_an_edge_listed_in_both_directions_keeps_its_weight(catalog: Catalog, tmp_path: Path, source: str) -> None:
    edges = opened(tmp_path / "files", LINES, source)
    graph = ingest_graph(catalog.create("g"), edges, options(), InProcessCluster())
    assert stored(graph) == MATRIX


@pytest.mark.parametrize("source", WRITERS)
def test_unequal_weights_of_both_directions_are_refused_by_the_ids_of_the_edge(
    catalog: Catalog, tmp_path: Path, source: str
) -> None:
    lines = [(u, v, 7.25 if (u, v) == (2, 1) else weight) for u, v, weight in LINES]
    dataset = catalog.create("g")
    with pytest.raises(InputError, match=r"(?=.*\b1 2 has .*0\.1)(?=.*\b2 1 has .*7\.25)(?=.*--merge)"):
        ingest_graph(dataset, opened(tmp_path / "files", lines, source), options(), InProcessCluster())
    # Nothing is left that another attempt would have to remove.
    assert not dataset.artifacts()
    graph = ingest_graph(dataset, opened(tmp_path / "files", lines, source), options(merge="max"), InProcessCluster())
    assert stored(graph)[1, 2] == 7.25


@pytest.mark.parametrize(("ids", "names"), [("compact", ("70", "900")), ("names", ("bob", "ann"))])
def test_the_error_calls_vertices_what_the_file_calls_them(
    catalog: Catalog, tmp_path: Path, ids: str, names: tuple[str, str]
) -> None:
    u, v = names
    (tmp_path / "edges.txt").write_text(f"{u} {v} 1\n{v} {u} 2\n{u} {u} 1\n")
    source = open_edges(None, [str(tmp_path / "edges.txt")], {"weights": True}, undirected=True)
    with pytest.raises(InputError, match=f"(?=.*{u} {v} has .*1)(?=.*{v} {u} has .*2)"):
        ingest_graph(catalog.create("g"), source, options(ids=ids), InProcessCluster())


def test_zeros_of_both_signs_are_one_weight_with_the_same_bits_in_both_rows(catalog: Catalog, tmp_path: Path) -> None:
    for number, (first, second) in enumerate([(0.0, -0.0), (-0.0, 0.0)]):
        source = write_edges(tmp_path / "edges", [0, 1], [1, 0], [first, second])
        graph = ingest_graph(catalog.create(f"g{number}"), source, options(), InProcessCluster())
        assert np.signbit(graph.to_scipy().data).tolist() == [False, False]


def test_only_undirected_weights_without_a_merge_have_another_key(tmp_path: Path) -> None:
    plain, weighted = tmp_path / "plain.txt", tmp_path / "weighted.txt"
    plain.write_text("0 1\n")
    weighted.write_text("0 1 2\n")
    for path, weights, undirected in [(plain, False, True), (weighted, True, False), (weighted, True, True)]:
        source = open_edges(None, [str(path)], {"weights": weights})
        keys = {graph_key(source, IngestOptions(undirected, merge=merge)) for merge in (None, "sum")}
        assert len(keys) == (2 if weights and undirected else 1)


def expected(lines: list[Line], merge: str | None) -> dict[tuple[int, int], float] | None:
    """The edges, from a dictionary of lists; None if the directions of one differ."""
    merges: dict[str | None, Any] = {None: sum, "sum": sum, "min": min, "max": max}
    found = defaultdict(list)
    for u, v, weight in lines:
        found[u, v].append(weight)
    if merge is None:
        sums = {ends: sum(weights) for ends, weights in found.items()}
        if any(sums.get((v, u), weight) != weight for (u, v), weight in sums.items()):
            return None
        return {(min(ends), max(ends)): weight for ends, weight in sums.items()}
    both = defaultdict[tuple[Any, Any], list[Any]](list)
    for (u, v), weights in found.items():
        both[min(u, v), max(u, v)] += weights
    return {ends: float(merges[merge](weights)) for ends, weights in both.items()}


@st.composite
def line_lists(draw: st.DrawFn) -> list[Line]:
    highest = draw(st.sampled_from([1, 3, 9, 30_000]))
    ids, weight = st.integers(0, highest), st.sampled_from([0.5, 1.0, -2.0])
    lines = draw(st.lists(st.tuples(ids, ids, weight), min_size=1, max_size=40))
    # Most files list whole edges.
    if draw(st.booleans()):
        lines += [(v, u, weight) for u, v, weight in lines if u != v]
    return draw(st.permutations(lines))


@pytest.mark.slow
@given(
    line_lists(),
    st.sampled_from([None, None, "sum", "min", "max"]),
    st.sampled_from([1, 3, 50]),
    st.sampled_from([1, 2, 5, 1000]),
    st.sampled_from([2, 20, 1000]),
    st.sampled_from([0, radix.NUMPY_KEYS]),
    st.sampled_from(["keep", "compact"]),
)
@settings(max_examples=examples(60), deadline=None)
def test_the_graph_is_the_dictionary_of_the_lines_however_they_are_cut(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[Line],
    merge: str | None,
    range_edges: int,
    capacity: int,
    block_entries: int,
    numpy_keys: int,
    ids: str,
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    u, v, w = zip(*lines, strict=True)
    source = write_edges(folder / "edges", u, v, w, range_edges=range_edges, chunk_edges=7)
    wanted, highest = expected(lines, merge), max(*u, *v)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(radix, "NUMPY_KEYS", numpy_keys)
        dataset, how = Catalog(folder).create("g"), options(merge=merge, ids=ids)
        cluster = InProcessCluster(scratch=replace(FEW_SPILLS, sorted_entries=capacity, block_entries=block_entries))
        if wanted is None:
            with pytest.raises(InputError, match="--merge"):
                ingest_graph(dataset, source, how, cluster)
            return
        graph = ingest_graph(dataset, source, how, cluster)
    original = np.arange(highest + 1) if ids == "keep" else graph.original_id()
    assert {(int(original[a]), int(original[b])): weight for (a, b), weight in stored(graph).items()} == wanted
    facts = graph.artifact.facts
    entries = len(lines) + sum(a != b for a, b, _ in lines)
    assert facts["nnz"] == entries - facts["duplicates"]
    ends = {(a, b) for a, b, _ in lines if a != b}
    assert facts.get("joined", 0) == (sum((b, a) in ends for a, b in ends) if merge is None else 0)


def test_bytes_of_marked_entries_do_not_depend_on_buffers_nor_on_how_the_source_is_cut(
    catalog: Catalog, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    u, v = rng.integers(0, 3000, (2, 6000))
    v[:2000] = 77
    u[:1000], v[:1000] = 5, 6
    weight = ((u + v) % 7 + 0.5).astype(np.float32)
    edges = (np.concatenate([u, v]), np.concatenate([v, u]), np.concatenate([weight, weight]))
    digests = set()
    for number, (range_edges, capacity) in enumerate([(12_000, 1 << 20), (1000, 100), (777, 3000)]):
        source = write_edges(tmp_path / "edges", *edges, range_edges=range_edges)
        scratch = replace(FEW_SPILLS if number else SMALL_LANES, sorted_entries=capacity, block_entries=5000)
        cluster = InProcessCluster(scratch=scratch)
        digests.add(ingest_graph(catalog.create(f"g{number}"), source, options(), cluster).artifact.digest)
    # Each edge once: the same graph.
    source = write_edges(tmp_path / "once", u, v, weight)
    cluster = InProcessCluster(scratch=Scratch(block_entries=5000))
    digests.add(ingest_graph(catalog.create("once"), source, options(merge="sum"), cluster).artifact.digest)
    assert len(digests) == 1


def test_the_plan_counts_the_bit_that_marks_a_direction(catalog: Catalog, tmp_path: Path) -> None:
    # Entries of 12 + 20 bits: with a mark, they no longer fit 32 bits.
    num_vertices, num_edges, spills = 1 << 20, 30_000, []
    u, v = np.random.default_rng(4).integers(0, num_vertices, (2, num_edges))
    u[0] = num_vertices - 1
    for merge in (None, "sum"):
        source = write_edges(tmp_path / "edges", u, v, np.ones(num_edges), range_edges=num_edges // 3)
        graph = ingest_graph(catalog.create(f"g-{merge or 'both'}"), source, options(merge=merge), InProcessCluster())
        how = SortOptions(undirected=True, merge=merge)
        marked = how.marks(value_bytes=4)
        sizes = SortSizes.even(
            num_vertices, num_edges, 3, DEFAULT_MEMORY, undirected=True, value_bytes=4, marked=marked
        )
        measured = graph.artifact.measured["spill_bytes"]
        assert sizes.spill_bytes == pytest.approx(measured, rel=0.01)
        assert count(sort_plan.SortPlan(sizes, how, DEFAULT_MEMORY).phases())[0].bytes_written >= sizes.spill_bytes
        spills.append(measured)
    assert spills[0] == spills[1] + 2 * num_edges


def test_marked_entries_of_the_largest_ids_keep_all_their_bits() -> None:
    form = KeyForm(MAX_VERTICES, marked=True)
    assert form.shift + form.column_bits == 64
    last = MAX_VERTICES - 1
    source, target = np.array([last, 3]), np.array([last - 1, last])
    position = np.zeros((last >> form.shift) + 1, np.int64)
    position[0] = 3
    low, high = np.zeros(4, np.uint32), np.zeros(4, np.uint32)
    weights = np.zeros(4, np.float32)
    given, ids = np.ones(2, np.float32), (form.shift, form.column_bits, 1, True, False)
    scatter._scatter_edges(source, target, given, *ids, position, low, high, weights)
    entries = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
    # The last unit has the rows ``last - 1`` and ``last``, and the first unit has row 3.
    wanted = [(last - 1, last, 0), (last, last - 1, 1), (last, 3, 0), (3, last, 1)]
    in_unit = (1 << form.shift) - 1
    assert entries.tolist() == [
        ((row & in_unit) << form.column_bits) | column << 1 | mark for row, column, mark in wanted
    ]
