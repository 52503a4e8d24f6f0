"""Links of one relation are edges that NumPy draws too, and the graph without them refers to all other relations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.stage import ingest_typed_graph
from gnnloom.pipeline.ingest.typed.table import parse_relations
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.links.given.given_stage import GivenLinks
from gnnloom.pipeline.links.options import DrawOptions, FileOptions, kept_graph_key, relation_links_key
from gnnloom.pipeline.links.relation import leaks
from gnnloom.pipeline.links.relation.given import store_relation_links
from gnnloom.pipeline.links.relation.projection import project_relation_links
from gnnloom.pipeline.links.relation.stage import draw_relation_links
from gnnloom.pipeline.matrix_sort.reverses import reverse_relations
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset, TypedGraph
from gnnloom.storage.artifacts.links import CLASS, NUMBER, Links
from gnnloom.storage.artifacts.typed.mapped_graph import map_relations, map_reverses
from gnnloom.storage.artifacts.typed.typed_graph import KeptEdges
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import CorruptError, InputError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.random_numbers import stream_key
from support.damage import replace_array
from support.links import mixed
from support.scratch import small_chunks
from support.stopping import run_in_steps
from support.typed_tables import MANY_FILES

#: Bytes of a class and of a number on disk.
VALUE_BYTES = {CLASS: 8, NUMBER: 4}
_GOLDEN = 0x9E3779B97F4A7C15
#: Many blocks, and steps of few rows and entries.
STEPS = Scratch(block_entries=60, range_rows=3, step_entries=40)
HERE = InProcessCluster(scratch=STEPS)


@pytest.fixture
def stored(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Dataset, TypedGraph]:
    """Payments with columns, some of them parallel, and relations with a weight, without values, and with a time."""
    small_chunks(monkeypatch, 1000)
    monkeypatch.setattr("gnnloom.pipeline.links.pair_arrays.CHUNKS_PER_TASK", 1)
    rng = np.random.default_rng(5)
    user, shop = rng.integers(0, 30, (3, 500)), rng.integers(0, 12, 300)
    time, amount, size = rng.integers(0, 90, 300), rng.integers(1, 9, 500), rng.random(300).round(3)
    pays = zip(user[0], shop, time, amount, size, np.where(amount % 3, "card", "cash"), strict=False)
    tables = {
        "user,pays,shop": (
            "from,to,at,amount,size,how",
            pays,
            ",at as time,amount as weight,size as feature,how as label",
        ),
        "user,follows,user": ("from,to", zip(user[1], user[2], strict=True), ""),
        "user,rates,shop": ("from,to,stars", zip(user[1], shop, amount, strict=False), ",stars as weight"),
        "shop,near,shop": ("from,to,since", zip(shop, shop[::-1], time, strict=True), ",since as time"),
    }
    given = []
    for name, (header, rows, columns) in tables.items():
        file = tmp_path / f"{name.split(',')[1]}.csv"
        file.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
        given.append(f"{name}={file}:from,to{columns}")
    dataset = catalog.create("shop")
    how = IngestOptions(merge="keep"), TypedOptions(), InProcessCluster(scratch=MANY_FILES)
    return dataset, ingest_typed_graph(dataset, TypedTables.open(parse_relations(given), {}, {}), *how)


def _ends(relation: Any) -> NDArray[np.int64]:
    """(num_edges, 2) sources and targets, in the order of the edges."""
    blocks = list(relation.edge_blocks())
    return np.stack([np.concatenate([block[end] for block in blocks]) for end in (0, 1)], axis=1)


def _keys(name: str, ends: NDArray[np.int64], seed: int, *, together: bool) -> list[int]:
    stream, keys = int(stream_key(seed, f"links/{name}")), []
    for source, target in ends.tolist():
        first, second = sorted((source, target)) if together else (source, target)
        keys.append(mixed(mixed(stream + (first + 1) * _GOLDEN) + (second + 1) * _GOLDEN))
    return keys


def _draw(stored: tuple[Dataset, TypedGraph], name: str, cluster: Any = None, **options: Any) -> Links:
    dataset, graph = stored
    return draw_relation_links(dataset, graph.relation(name), DrawOptions(relation=name, **options), cluster or HERE)


def _expected(keys: list[Any], can_be: NDArray[np.bool_], counts: list[int]) -> list[NDArray[np.int64]]:
    """Positions of the edges of the splits test, valid and perhaps train, and of the rest, if no two keys differ."""
    edges = np.flatnonzero(can_be)
    ordered = sorted(keys[edge] for edge in edges)
    ends = [ordered[end - 1] for end in np.cumsum(counts)]
    number = [sum(keys[edge] > end for end in ends) for edge in edges]
    return [edges[np.array(number) == each] for each in range(len(ends) + 1)]


def _check_message(dataset: Dataset, graph: TypedGraph, links: Links, kept: NDArray[np.int64]) -> None:
    """Check the graph without held-out edges, and its reverses, against the kept positions."""
    assert links.relation is not None
    message, name = dataset.typed_graph(links.message_graph), links.relation.name
    relation, whole = message.relation(name), graph.relation(name)
    assert isinstance(relation, KeptEdges)
    assert relation.nnz == len(kept) == whole.nnz - links.artifact.facts["held_out_entries"]
    np.testing.assert_array_equal(relation.edge_positions(), kept)
    ends = _ends(whole)
    np.testing.assert_array_equal(_ends(relation), ends[kept])
    pairs = ends[kept]
    assert relation.parallel == len(pairs) - len(np.unique(pairs, axis=0))
    np.testing.assert_array_equal(relation.degree(), np.bincount(pairs[:, 1], minlength=relation.num_rows))
    for column in whole.edge_columns:
        np.testing.assert_array_equal(relation.column(column), whole.column(column)[kept])
        np.testing.assert_array_equal(relation.column(column, 3, 9), whole.column(column)[kept][3:9])
    values = [[block[2] for block in each.edge_blocks() if block[2] is not None] for each in (whole, relation)]
    assert not values[0] or np.array_equal(np.concatenate(values[0])[kept], np.concatenate(values[1]))
    if whole.edge_columns:
        rows = [np.concatenate([each.rows(block) for block in range(each.num_blocks)]) for each in (whole, relation)]
        np.testing.assert_array_equal(rows[0][kept], rows[1])
    # Nothing else is stored again.
    for each in message.relations:
        assert each.artifact.path == (message if each.name == name else graph).artifact.path
    assert {path.name for path in (message.artifact.path / "relation").iterdir()} == {name, "zarr.json"}
    assert not (message.artifact.path / "type").exists()
    reverses = reverse_relations(dataset, message, InProcessCluster())
    relations = map_relations(message)
    mapped = relations | map_reverses(reverses, relations)
    order = np.lexsort((kept, pairs[:, 1], pairs[:, 0]))
    back = mapped[f"rev_{name}"]
    np.testing.assert_array_equal(back.edges(np.arange(len(kept))), kept[order])
    np.testing.assert_array_equal(mapped[name].edges(np.arange(len(kept))), kept)
    np.testing.assert_array_equal(back.matrix.indices, pairs[order, 1])
    for column in whole.edge_columns:
        np.testing.assert_array_equal(back.values(column, np.arange(len(kept))), whole.column(column)[kept[order]])
    assert {each.relation.name for each in reverses.relations} == {name}
    assert [each for each in mapped if not each.startswith("rev_")] == [each.name for each in message.relations]
    assert [finding.problem for finding in dataset.verify() if finding.problem] == []


def _check_negatives(links: Links, ends: NDArray[np.int64], *, has_loops: bool) -> None:
    """Check pools: every number of the pairs that are no edges, in order, at the place that its stream says."""
    assert links.relation is not None
    is_edge = np.zeros((links.target_vertices, links.source_vertices), np.bool_)
    is_edge[ends[:, 1], ends[:, 0]] = True
    if has_loops:
        np.fill_diagonal(is_edge, True)
    target, source = np.nonzero(~is_edge)
    for split in ("valid", "test"):
        stream, size = int(stream_key(0, f"links/pool/{split}")), links.num_pooled(split)
        places = [(k * len(target) + (mixed(stream + k * _GOLDEN) * len(target) >> 64)) // size for k in range(size)]
        np.testing.assert_array_equal(links.pool(split), np.stack([source[places], target[places]], axis=1))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pays", {}),
        ("pays", {"disjoint": 0.3, "negatives": 7}),
        ("rates", {"negatives": 0}),
        ("follows", {}),
        ("follows", {"reciprocal": "apart"}),
        ("near", {"reciprocal": "together"}),
    ],
)
def test_random_links_of_a_relation(stored: tuple[Dataset, TypedGraph], name: str, options: dict[str, Any]) -> None:
    dataset, graph = stored
    relation = graph.relation(name)
    ends, is_square = _ends(relation), relation.source == relation.target
    together = is_square and options.get("reciprocal") != "apart"
    can_be = ends[:, 0] != ends[:, 1] if is_square else np.ones(len(ends), np.bool_)
    assert is_square or (ends[:, 0] == ends[:, 1]).any()
    links, ran = run_in_steps(
        lambda cluster: _draw(stored, name, cluster, valid=0.2, test=0.1, **options), 7, scratch=STEPS
    )
    assert len(ran) > 20
    total = int(can_be.sum())
    counts = [total // 10, total // 5]
    counts += [int(0.3 * (total - sum(counts)))] if "disjoint" in options else []
    split = _expected(_keys(name, ends, 0, together=together), can_be, counts)
    for each, wanted in zip(("test", "valid", "train"), split, strict=False):
        np.testing.assert_array_equal(links.edge(each), wanted)
        np.testing.assert_array_equal(links.pair(each), ends[wanted])
        assert links.num_pairs[each] == len(wanted)
    held_out = np.concatenate(split[: 3 if "disjoint" in options else 2])
    _check_message(dataset, graph, links, np.setdiff1d(np.arange(len(ends)), held_out))
    if options.get("negatives", 1):
        _check_negatives(links, ends, has_loops=is_square)
    else:
        assert not links.num_pooled("test")
    assert links.together == together
    assert (
        relation_links_key(graph.artifact.key, DrawOptions(relation=name, valid=0.2, **options)) == links.artifact.key
    )
    assert kept_graph_key(graph.artifact.key, links.artifact.key, name) == links.message_graph


@pytest.mark.parametrize(
    ("name", "values", "by"), [("pays", CLASS, "time"), ("pays", NUMBER, "random"), ("rates", NUMBER, "random")]
)
def test_pairs_have_the_label_or_the_weight_of_their_edges(
    stored: tuple[Dataset, TypedGraph], name: str, values: str, by: str
) -> None:
    dataset, graph = stored
    relation = graph.relation(name)
    options: dict[str, Any] = {"by": by, "valid": 0.2, "disjoint": 0.3}
    blocks = [block[2] for block in relation.edge_blocks() if block[2] is not None]
    # The only number of the edges is in the blocks.
    column = relation.column("label" if values == CLASS else "weight") if not blocks else np.concatenate(blocks)
    projected = [
        project_relation_links(dataset, relation, DrawOptions(relation=name, negatives=0, values=each, **options), 1)
        for each in (values, None)
    ]
    links, ran = run_in_steps(lambda cluster: _draw(stored, name, cluster, values=values, **options), 7, scratch=STEPS)
    bare = _draw(stored, name, negatives=0, **options)
    assert len(ran) > 20
    for split in ("train", "valid", "test"):
        np.testing.assert_array_equal(links.edge(split), bare.edge(split))
        np.testing.assert_array_equal(links.value(split), column[links.edge(split)])
        assert links.num_pooled(split) == 0
    assert (links.kind, links.num_classes) == (values, 2 if values == CLASS else 0)
    assert links.class_names == (("card", "cash") if values == CLASS else ())
    # Nothing that changes only negatives makes other links.
    assert _draw(stored, name, values=values, negatives=9, **options).artifact.key == links.artifact.key
    assert [finding.problem for finding in dataset.verify() if finding.problem] == []
    size = VALUE_BYTES[values] * sum(links.num_pairs.values())
    assert projected[0].output_bytes - projected[1].output_bytes == size
    assert projected[0].temporary_bytes > projected[1].temporary_bytes


@pytest.mark.parametrize(("labels", "said"), [([0, 1, 1 << 24], "label 16777216"), ([], "as label")])
def test_labels_that_are_not_classes_are_refused(
    catalog: Catalog, tmp_path: Path, labels: list[int], said: str
) -> None:
    rows = "".join(f"{k % 7},{k % 5},{labels[k % 3] if labels else 0}\n" for k in range(35))
    (tmp_path / "trusts.csv").write_text("from,to,sign\n" + rows)
    given = f"user,trusts,shop={tmp_path / 'trusts.csv'}:from,to{',sign as label' if labels else ''}"
    tables, how = TypedTables.open(parse_relations([given]), {}, {}), (IngestOptions(merge="keep"), TypedOptions())
    dataset = catalog.create("shop")
    graph = ingest_typed_graph(dataset, tables, *how, InProcessCluster())
    with pytest.raises(InputError, match=f"{said}.*class|class.*{said}"):
        _draw((dataset, graph), "trusts", values=CLASS)
    assert not dataset.artifacts("links")


def test_values_of_a_graph_without_types_come_from_files() -> None:
    with pytest.raises(InputError, match=r"values class.*--relation"):
        DrawOptions(values=CLASS)


@pytest.mark.parametrize("name", ["pays", "near"])
def test_the_latest_edges_are_held_out_and_earlier_parallel_ones_stay(
    stored: tuple[Dataset, TypedGraph], name: str
) -> None:
    dataset, graph = stored
    relation = graph.relation(name)
    ends = _ends(relation)
    stored_times = [relation.times(number) for number in range(relation.num_blocks)]
    time = np.concatenate([each.read() for each in stored_times if each] or [relation.column("time")])
    can_be = ends[:, 0] != ends[:, 1] if name == "near" else np.ones(len(ends), np.bool_)
    keys = list(zip((-time).tolist(), _keys(name, ends, 0, together=False), strict=True))
    total = int(can_be.sum())
    links = _draw(stored, name, by="time", valid=0.2, test=0.1)
    test, valid, rest = _expected(keys, can_be, [total // 10, total // 5])
    np.testing.assert_array_equal(links.edge("test"), test)
    np.testing.assert_array_equal(links.edge("valid"), valid)
    np.testing.assert_array_equal(links.edge("train"), rest)
    assert time[test].min() >= time[valid].max() >= time[rest].max()
    # A pair with an earlier and a later payment is in the graph and held out.
    shared = {tuple(pair) for pair in ends[test].tolist()} & {tuple(pair) for pair in ends[rest].tolist()}
    assert shared
    _check_message(dataset, graph, links, np.setdiff1d(np.arange(len(ends)), np.concatenate([test, valid])))


def test_a_removed_message_graph_is_made_again(stored: tuple[Dataset, TypedGraph]) -> None:
    dataset, _ = stored
    links = _draw(stored, "pays")
    first = dataset.typed_graph(links.message_graph).artifact
    first.path.rename(first.path.parent / ".away")
    again = _draw(stored, "pays")
    assert again.artifact.digest == links.artifact.digest
    assert dataset.typed_graph(links.message_graph).artifact.digest == first.digest


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("pays", {"reciprocal": "apart"}, "reciprocal"),
        ("follows", {"by": "time"}, "times"),
        ("pays", {"by": "time", "times": "abc"}, "times abc"),
        ("near", {"by": "time", "reciprocal": "together"}, "reciprocal"),
        ("pays", {"test": 0.001}, "test"),
    ],
)
def test_what_a_relation_cannot_have_is_refused(
    stored: tuple[Dataset, TypedGraph], name: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        _draw(stored, name, **options)
    assert not stored[0].artifacts("links")


@pytest.mark.parametrize(
    ("rows", "said"), [("1,2\n" * 50 + "3,2\n", "parallel"), ("1,2\n3,2\n", "relation pays has 2 edges")]
)
def test_too_few_edges_are_refused(catalog: Catalog, tmp_path: Path, rows: str, said: str) -> None:
    (tmp_path / "pays.csv").write_text("from,to\n" + rows)
    tables = TypedTables.open(parse_relations([f"user,pays,shop={tmp_path / 'pays.csv'}:from,to"]), {}, {})
    dataset = catalog.create("shop")
    graph = ingest_typed_graph(dataset, tables, IngestOptions(merge="keep"), TypedOptions(), InProcessCluster())
    with pytest.raises(InputError, match=said):
        _draw((dataset, graph), "pays")
    assert not dataset.artifacts("links")


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("graph:relation/pays/block/00001/row", lambda rows: rows[::-1]),
        ("links:test/edge", lambda edges: edges[::-1]),
        ("links:test/pair", lambda pairs: pairs[::-1]),
        ("links:valid/pair", lambda pairs: pairs[:, ::-1] + (0, 12)),
    ],
)
def test_verify_finds_what_is_not_the_whole_relation(
    stored: tuple[Dataset, TypedGraph], path: str, change: Any
) -> None:
    dataset, _ = stored
    links = _draw(stored, "pays")
    kind, _, array = path.partition(":")
    artifact: Artifact = links.artifact if kind == "links" else dataset.typed_graph(links.message_graph).artifact
    replace_array(artifact, array, change)
    assert any(finding.problem for finding in dataset.verify())
    with pytest.raises(CorruptError):
        check_artifact(dataset, Artifact(artifact.path))


@pytest.mark.parametrize(("least", "kept"), [(1 << 14, 1.0), (2, 0.5)])
def test_held_out_pairs_that_another_relation_has_in_the_other_direction_are_counted(
    catalog: Catalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    least: int,
    kept: float,
) -> None:
    monkeypatch.setattr(leaks, "_READ", least)
    rng = np.random.default_rng(3)
    pairs = np.unique(np.stack([rng.integers(0, 40, 300), rng.integers(0, 25, 300)], 1), axis=0)
    reverses = pairs[rng.random(len(pairs)) < kept][:, ::-1]
    tables = {
        "drug,treats,disease": pairs,
        "disease,treated_by,drug": reverses,
        # One has the edges themselves, and the others have ends of one type.
        "drug,helps,disease": pairs,
        "disease,like,disease": pairs % 25,
        "disease,liked_by,disease": pairs[:, ::-1] % 25,
    }
    given = []
    for name, rows in tables.items():
        file = tmp_path / f"{name.split(',')[1]}.csv"
        file.write_text("a,b\n" + "".join(f"{u},{v}\n" for u, v in rows.tolist()))
        given.append(f"{name}={file}:a,b")
    dataset = catalog.create("drugs")
    opened = TypedTables.open(parse_relations(given), {}, {})
    graph = ingest_typed_graph(dataset, opened, IngestOptions(), TypedOptions(), InProcessCluster())
    links = _draw((dataset, graph), "treats", valid=0.2, test=0.2)
    ids = [graph.original_id(name, 0, graph.type(name).count) for name in ("drug", "disease")]
    held = np.concatenate([links.pair("valid"), links.pair("test")])
    known = set(map(tuple, reverses.tolist()))
    count = sum((int(ids[1][v]), int(ids[0][u])) in known for u, v in held.tolist())
    assert 0 < count <= len(held) < 2 * leaks._SAMPLED
    (warning,) = [each.getMessage() for each in caplog.records if "other direction" in each.getMessage()]
    assert f"relation treated_by has {count} of {len(held)} pairs of treats" in warning
    assert "--relation-fanout treated_by=0" in warning
    caplog.clear()
    _draw((dataset, graph), "helps", valid=0.2, test=0.2)
    _draw((dataset, graph), "like", valid=0.2, test=0.2)
    for split, rows in (("valid", pairs[:5]), ("test", pairs[5:20])):
        (tmp_path / f"{split}.csv").write_text("a,b\n" + "".join(f"{u},{v}\n" for u, v in rows.tolist()))
    valid, test = (str(tmp_path / f"{split}.csv") for split in ("valid", "test"))
    told = [each.getMessage().partition(" for ")[0] for each in caplog.records]
    assert [(each.split()[1], each.split()[-1]) for each in told] == [("treated_by", "helps"), ("liked_by", "like")]
    caplog.clear()
    how = FileOptions(relation="treats", header=True, valid=valid, test=test)
    store_relation_links(dataset, graph.relation("treats"), GivenLinks.of(how), InProcessCluster())
    count = sum((v, u) in known for u, v in pairs[:20].tolist())
    assert f"has {count} of 20 pairs of treats" in "".join(each.getMessage() for each in caplog.records)
