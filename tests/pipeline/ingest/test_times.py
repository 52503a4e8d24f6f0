"""Times of edges are stored exactly, whatever the format, the ids and the workers, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph, project_ingest
from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.links.projection import project_links
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.sources.parsers.numerals import INEXACT, parse_value
from gnnloom.pipeline.sources.reading.name_ids import FIRST_ROWS
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.pipeline.tasks.cluster import InProcessCluster, ThreadedCluster
from gnnloom.storage import Catalog, Dataset, Graph
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.artifact import Artifact
from support.covering import examples, few_of
from support.small_stages import SMALL_FILES, make_small
from support.stopping import run_in_steps, workers_and_tasks

_VERTICES, _EDGES = 60, 900
#: How times are written: whole seconds, microseconds with many ties, fractions, dates with a time of day as a fraction.
TIMES: dict[str, Callable[[np.random.Generator, int], list[str]]] = {
    "seconds": lambda rng, count: [str(1_700_000_000 + t) for t in rng.integers(0, count, count).tolist()],
    "microseconds": lambda rng, count: [str(1_700_000_000_000_000 + t) for t in rng.integers(0, 40, count).tolist()],
    "fractions": lambda rng, count: [f"{1_700_000_000 + t:.6f}" for t in rng.random(count).tolist()],
    "dates": lambda rng, count: [f"202401{d:02d}.{s:06d}" for d, s in rng.integers(1, 32, (count, 2)).tolist()],
}
_MERGES: dict[str, Callable[[NDArray[np.float64]], float]] = {
    "max": lambda times: float(times.max()),
    "min": lambda times: float(times.min()),
    "first": lambda times: float(times[0]),
}


def edges_of(seed: int) -> NDArray[np.int64]:
    """Edges without loops, many of which occur several times."""
    pairs: NDArray[np.int64] = np.random.default_rng(seed).integers(0, _VERTICES, (_EDGES, 2))
    found: NDArray[np.int64] = pairs[pairs[:, 0] != pairs[:, 1]]
    return found


def merged(pairs: NDArray[np.int64], times: NDArray[np.float64], merge: str) -> NDArray[np.float64]:
    """The matrix of times, 0 where there is no edge."""
    found = np.zeros((_VERTICES, _VERTICES))
    for source, target in np.unique(pairs, axis=0).tolist():
        found[target, source] = _MERGES[merge](times[(pairs == (source, target)).all(1)])
    return found


def times_of(graph: Graph) -> NDArray[np.float64]:
    """The same of a stored graph, whose loops have no times, and whose vertices are in the order of their ids."""
    found = np.zeros((_VERTICES, _VERTICES))
    for number in range(graph.num_blocks):
        block, times = graph.block(number), graph.times(number)
        assert block.data is None
        assert times is not None
        assert times.dtype == np.float64
        rows = block.row_offset + np.repeat(np.arange(block.num_rows), np.diff(block.indptr))
        found[rows, block.indices] = times.read()
    assert not found.diagonal().any()
    return found


def text_edges(folder: Path, pairs: NDArray[np.int64], times: list[str]) -> TextEdges:
    lines = [f"{source},{target},{time}\n" for (source, target), time in zip(pairs.tolist(), times, strict=True)]
    (folder / "edges.csv").write_text("".join(lines))
    return replace(TextEdges.open([str(folder / "edges.csv")], times=True), range_bytes=5000)


@pytest.mark.parametrize(("times", "ids"), few_of(TIMES, ["keep", "compact", "names"], together=1))
def test_text_gives_the_times_of_numpy(catalog: Catalog, tmp_path: Path, times: str, ids: str) -> None:
    pairs, rng = edges_of(1), np.random.default_rng(2)
    written = TIMES[times](rng, len(pairs))
    source = text_edges(tmp_path, pairs, written)
    merge = list(_MERGES)[list(TIMES).index(times) % 3]
    graph = ingest_graph(catalog.create("g"), source, IngestOptions(merge=merge, ids=ids), InProcessCluster())
    assert (graph.has_times, graph.weighted, graph.weights(0)) == (True, False, None)
    order = [int(name) for name in graph.original_name()] if ids == "names" else graph.original_id().tolist()
    expected = merged(pairs, np.array(written, np.float64), merge)
    np.testing.assert_array_equal(times_of(graph), expected[np.ix_(order, order)])
    check_artifact(catalog["g"], graph.artifact)


# torch has few operations on uint64.
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (kind, dtype)
        for kind, dtype in product(["npz", "parquet", "pt", "scipy"], [np.int64, np.uint64, np.float64, np.int32])
        if (kind, dtype) != ("pt", np.uint64)
    ],
)
def test_binary_files_give_the_times_of_numpy(
    catalog: Catalog, tmp_path: Path, kind: str, dtype: type[np.generic]
) -> None:
    pairs = np.unique(edges_of(3), axis=0)
    # The last ones are the largest integers of their types that float64 has.
    times: Any = 1_700_000_000 + np.random.default_rng(4).permutation(len(pairs))
    times = times.astype(dtype)
    times[0] = {np.int64: 2**63 - 1024, np.uint64: 2**64 - 2048, np.float64: -0.1, np.int32: -(2**31)}[dtype]
    path = tmp_path / f"edges.{'npz' if kind == 'scipy' else kind}"
    if kind == "npz":
        np.savez(path, edge_index=pairs.T, edge_time=times)
    elif kind == "scipy":
        scipy_sparse = pytest.importorskip("scipy.sparse")
        matrix = scipy_sparse.coo_array((times, (pairs[:, 0], pairs[:, 1])), shape=(_VERTICES, _VERTICES))
        np.savez(path, format=b"coo", shape=matrix.shape, row=pairs[:, 0], col=pairs[:, 1], data=times)
    elif kind == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({"a": pairs[:, 0], "b": pairs[:, 1], "w": np.ones(len(pairs)), "t": times}), path)
    else:
        torch = pytest.importorskip("torch")
        torch.save({"edge_index": torch.from_numpy(pairs.T.copy()), "edge_time": torch.from_numpy(times)}, path)
    options = {"times": True, **({"columns": "a,b,t"} if kind == "parquet" else {})}
    graph = ingest_graph(
        catalog.create("g"), open_edges(None, [str(path)], options), IngestOptions(merge="max"), InProcessCluster()
    )
    np.testing.assert_array_equal(times_of(graph), merged(pairs, times.astype(np.float64), "max"))


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_integers_that_float64_lacks_are_refused_in_binary_files(
    tmp_path: Path, kind: str, dtype: type[np.generic]
) -> None:
    # Among the first ones, it would make all of them integers.
    times: Any = np.arange(FIRST_ROWS + 1, dtype=dtype)
    times[FIRST_ROWS] = 2**53 + 1
    path = tmp_path / f"edges.{kind}"
    if kind == "npz":
        np.savez(path, row=np.arange(len(times)), col=np.arange(len(times)) + 1, time=times)
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({"a": np.arange(len(times)), "b": np.arange(len(times)) + 1, "t": times}), path)
    source = open_edges(None, [str(path)], {"times": True})
    with pytest.raises(InputError, match=rf"(edge|row) {FIRST_ROWS:,}: expected a time .* found 9007199254740993"):
        list(source.read(source.ranges()[0]))


@pytest.mark.parametrize(
    ("ids", "time", "reason"),
    few_of(
        ["keep", "names"],
        [
            pytest.param("20240131235959.123", "expected a time that float64 holds with all its digits"),
            pytest.param("nan", "found NaN"),
            pytest.param("noon", "expected a number"),
        ],
        together=1,
    ),
)
def test_times_that_would_be_rounded_are_refused_with_their_line(
    catalog: Catalog, tmp_path: Path, time: str, reason: str, ids: str
) -> None:
    source = text_edges(tmp_path, np.array([[0, 1], [1, 2]]), ["1700000000", time])
    with pytest.raises(InputError, match=rf"line 2: .*{reason}"):
        ingest_graph(catalog.create("g"), source, IngestOptions(merge="max", ids=ids), InProcessCluster())
    assert catalog["g"].artifacts() == []


_DIGITS = st.text("0123456789", min_size=1, max_size=22)


def parsed(text: str) -> tuple[float, int]:
    """The time that a text is parsed as, and the fault."""
    value, _, wrong = parse_value(np.frombuffer(f"{text}\n{' ' * 24}".encode(), np.uint8), 0, True)
    return float(value), int(wrong)


@given(st.builds("{}{}.{}".format, st.sampled_from(["", "-", "+"]), _DIGITS, _DIGITS))
@example("9007199254740993.0")
@example("0.1000000000000000055")
@example("0.0000000000000000000001")
@settings(max_examples=examples(400), deadline=None)
def test_a_decimal_is_a_time_if_the_double_rounds_to_it(text: str) -> None:
    decimal, value = Decimal(text), float(text)
    value_found, wrong = parsed(text)
    half = Decimal(5).scaleb(decimal.as_tuple().exponent - 1)  # type: ignore[operator]
    error = abs(Decimal(value) - decimal)
    # Ties, and digits beyond the 30th, count either way.
    if error < half and not abs(error - half) < half * Decimal("1e-5"):
        assert (value_found, wrong) == (value, 0)
    elif error > half * Decimal("1.00001") + abs(decimal) * Decimal(2) ** -97:
        assert wrong == INEXACT


@given(st.floats(-1e18, 1e18), st.sampled_from([repr, "{:.16e}".format, "{:.18e}".format, "{:.20f}".format]))
# Its last digit is rounded from exactly half a unit.
@example(2882304.7559428215, "{:.20f}".format)
@settings(max_examples=examples(300), deadline=None)
def test_a_double_that_was_written_with_all_its_digits_is_a_time(value: float, write: Callable[[float], str]) -> None:
    # Smaller numbers may have no digit that counts among twenty decimals.
    value = value if abs(value) > 1e-3 else 0.0
    assert parsed(write(value)) == (value, 0)


#: Renumbered edges are scattered and sorted as those that keep their ids.
@pytest.mark.slow
@workers_and_tasks
@pytest.mark.parametrize("ids", [pytest.param("keep", marks=pytest.mark.long), "compact"])
def test_the_bytes_are_the_same_for_any_number_of_workers_and_after_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids: str, workers: int, tasks: int
) -> None:
    make_small(monkeypatch.setattr)
    pairs, rng = edges_of(5), np.random.default_rng(6)
    source = replace(text_edges(tmp_path, pairs, TIMES["seconds"](rng, len(pairs))), range_bytes=1500)

    def stored(name: str, cluster: Any) -> dict[str, str]:
        dataset = Catalog(tmp_path / "catalog").create(name)
        options = IngestOptions(undirected=True, merge="min", ids=ids)
        draw_links(dataset, ingest_graph(dataset, source, options, cluster), DrawOptions(by="time"), cluster)
        return {f"{info.kind}/{info.key}": Artifact(info.path).digest for info in dataset.artifacts()}

    expected = stored("one", InProcessCluster(scratch=SMALL_FILES))
    for number in {1, 2, workers}:
        assert stored(f"workers-{number}", ThreadedCluster(number, 1 << 30, SMALL_FILES)) == expected
    assert run_in_steps(lambda cluster: stored("killed", cluster), tasks, scratch=SMALL_FILES)[0] == expected


def test_times_a_second_apart_decide_which_edges_are_the_latest(catalog: Catalog, tmp_path: Path) -> None:
    # A path, whose edges are made one after another, in another order in the file; float32 has 3 of these 300 times.
    order = np.random.default_rng(7).permutation(300)
    source = text_edges(tmp_path, np.stack([order, order + 1], 1), [str(1_700_000_000 + k) for k in order.tolist()])
    dataset = catalog.create("calls")
    graph = ingest_graph(dataset, source, IngestOptions(undirected=True, merge="max"), InProcessCluster())
    links = draw_links(dataset, graph, DrawOptions(by="time", valid=0.1, test=0.2), InProcessCluster())
    assert links.pair("test")[:, 0].tolist() == [*range(240, 300)]
    assert links.pair("valid")[:, 0].tolist() == [*range(210, 240)]
    message = dataset.graph(links.message_graph)
    assert (message.has_times, message.weighted) == (False, False)


@pytest.fixture
def both(catalog: Catalog, tmp_path: Path) -> tuple[Dataset, Graph, Graph]:
    """A dataset of edges with weights and times, and its graphs of both."""
    pairs, rng = edges_of(8), np.random.default_rng(9)
    rows = zip(pairs.tolist(), rng.random(len(pairs)).tolist(), TIMES["seconds"](rng, len(pairs)), strict=True)
    path = tmp_path / "calls.csv"
    path.write_text("a,b,w,t\n" + "".join(f"{a},{b},{weight},{time}\n" for (a, b), weight, time in rows))
    dataset, here = catalog.create("calls"), InProcessCluster()
    weighted = open_edges(None, [str(path)], {"columns": "a,b,w"})
    timed = open_edges(None, [str(path)], {"columns": "a,b,t", "times": True})
    graph = ingest_graph(dataset, weighted, IngestOptions(undirected=True, merge="sum"), here)
    times = ingest_graph(dataset, timed, IngestOptions(undirected=True, merge="max"), here, allow_others=True)
    return dataset, graph, times


def test_weights_stay_next_to_times_of_another_graph(both: tuple[Dataset, Graph, Graph]) -> None:
    dataset, graph, times = both
    options, here = DrawOptions(by="time", times=times.artifact.key, seed=3), InProcessCluster()
    planned = project_links(dataset, graph, options, 1, here.memory)
    links = draw_links(dataset, graph, options, here)
    assert (planned.key, planned.message_graph) == (links.artifact.key, links.message_graph)
    of_times = draw_links(dataset, times, DrawOptions(by="time", seed=3), here)
    for split in ("train", "valid", "test"):
        np.testing.assert_array_equal(links.pair(split), of_times.pair(split))
    message, without = (dataset.graph(each.message_graph).to_scipy() for each in (links, of_times))
    np.testing.assert_array_equal(message.indices, without.indices)
    kept = without.toarray() != 0
    np.testing.assert_array_equal(message.toarray(), np.where(kept, graph.to_scipy().toarray(), 0))
    source, target = links.pair("train").T
    np.testing.assert_array_equal(links.weight(), graph.to_scipy().toarray()[target, source])
    for info in dataset.artifacts():
        check_artifact(dataset, Artifact(info.path))
    # Other parameters, other links; and the times of the graph itself are those of no other one.
    assert draw_links(dataset, times, replace(options, times=times.artifact.key), here).artifact.key == (
        of_times.artifact.key
    )


def test_times_of_other_edges_are_refused(both: tuple[Dataset, Graph, Graph], tmp_path: Path) -> None:
    dataset, graph, _ = both
    here = InProcessCluster()
    pairs = edges_of(8)
    # As many edges in as many rows, one of them to another vertex.
    missing = next(each for each in range(_VERTICES) if not (np.sort(pairs) == (0, each)).all(1).any() and each)
    there = next(pair for pair in pairs.tolist() if 0 in pair)
    replaced = np.where((np.sort(pairs) == sorted(there)).all(1)[:, None], (0, missing), pairs)
    source = text_edges(tmp_path, replaced, ["5"] * (len(pairs) - 1) + ["6"])
    other = ingest_graph(dataset, source, IngestOptions(undirected=True, merge="max"), here, allow_others=True)
    assert (other.block_nnz, other.block_rows) == (graph.block_nnz, graph.block_rows)
    with pytest.raises(InputError, match=r"block 0 .* edges"):
        draw_links(dataset, graph, DrawOptions(by="time", times=other.artifact.key), here)
    source = text_edges(tmp_path, pairs[:-300], ["5"] * (len(pairs) - 300))
    fewer = ingest_graph(dataset, source, IngestOptions(undirected=True, merge="max"), here, allow_others=True)
    with pytest.raises(InputError, match="has other edges than"):
        draw_links(dataset, graph, DrawOptions(by="time", times=fewer.artifact.key), here)
    with pytest.raises(InputError, match="the edges have no times"):
        draw_links(dataset, graph, DrawOptions(by="time", times=graph.artifact.key), here)
    with pytest.raises(NotFoundError):
        draw_links(dataset, graph, DrawOptions(by="time", times="0" * 16), here)
    with pytest.raises(InputError, match=f"expected the whole key, {other.artifact.key}"):
        draw_links(dataset, graph, DrawOptions(by="time", times=other.artifact.key[:-1]), here)
    with pytest.raises(InputError, match="given without --by time"):
        DrawOptions(times=graph.artifact.key)
    assert dataset.artifacts("links") == []


def test_what_times_cannot_be_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    source = text_edges(tmp_path, np.array([[0, 1], [1, 2]]), ["1", "2"])
    for refused in (
        lambda: ingest_graph(catalog.create("g"), source, IngestOptions(), InProcessCluster()),
        lambda: project_ingest(source, IngestOptions(), tmp_path, 1, 1 << 30),
    ):
        with pytest.raises(InputError, match=r"merge 'sum': .*--merge max"):
            refused()
    assert catalog["g"].artifacts() == []
    path = str(tmp_path / "edges.csv")
    with pytest.raises(InputError, match="weights and times:"):
        open_edges(None, [path], {"weights": True, "times": True})
    (tmp_path / "m.mtx").write_text("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 3\n")
    with pytest.raises(InputError, match="has no option times"):
        open_edges(None, [str(tmp_path / "m.mtx")], {"times": True})
    np.save(tmp_path / "e.npy", np.zeros((2, 3), np.int64))
    with pytest.raises(InputError, match="has no option times"):
        open_edges(None, [str(tmp_path / "e.npy")], {"times": True})
    np.savez(tmp_path / "e.npz", edge_index=np.zeros((2, 3), np.int64))
    with pytest.raises(InputError, match=r"no times.* edge_time or time or data"):
        open_edges(None, [str(tmp_path / "e.npz")], {"times": True})
