"""Tables of a graph with types become what NumPy makes of them, in the same bytes however the work is done."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.typed.notes import typed_notes
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.stage import ingest_typed_graph, project_typed_ingest
from gnnloom.pipeline.ingest.typed.table import parse_relations, parse_vertices
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.tasks.cluster import DEFAULT_MEMORY, InProcessCluster
from gnnloom.storage import Catalog, TypedGraph
from gnnloom.storage.disk.files import write_json
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import ExistsError, FormatError, GnnloomError, InputError
from gnnloom.storage.format.artifact import MANIFEST, Artifact
from gnnloom.storage.format.schema import array_files
from support.covering import examples
from support.lanes import flip_bit
from support.stopping import run_in_steps
from support.typed_tables import MANY_BLOCKS, MANY_FILES, TypedProblem, check, random_problem


@pytest.mark.parametrize("unknown", ["add", "drop"])
def test_a_graph_is_what_numpy_makes_of_its_tables(catalog: Catalog, tmp_path: Path, unknown: str) -> None:
    problem = random_problem(1, unknown=unknown)
    graph = problem.ingest(catalog.create("shop"), tmp_path / "tables")
    check(graph, problem)
    # The listed type without a relation, and users that no table lists.
    (shop, user) = (facts for facts in graph.artifact.facts["types"] if facts["name"] in {"shop", "user"})
    assert shop["count"] == 2
    assert user["added" if unknown == "add" else "dropped"] > 0
    left_out = [each.facts.get("left_out", 0) for each in graph.relations if "user" in each.edge_type]
    assert all(left_out) == (unknown == "drop")
    assert [finding.problem for finding in catalog["shop"].verify()] == [None]


@pytest.mark.slow
@pytest.mark.parametrize("unknown", ["add", "drop"])
def test_bytes_do_not_depend_on_memory_or_interruptions(catalog: Catalog, tmp_path: Path, unknown: str) -> None:
    problem = random_problem(2, unknown=unknown)
    whole = problem.ingest(catalog.create("whole"), tmp_path / "tables", InProcessCluster(scratch=MANY_BLOCKS))
    check(whole, problem)
    assert whole.relation("buys").num_blocks > 2
    stopped, ran = run_in_steps(
        lambda cluster: problem.ingest(catalog.create("stopped"), tmp_path / "tables", cluster), 7, scratch=MANY_FILES
    )
    assert len(ran) > 60
    assert stopped.artifact.digest == whole.artifact.digest
    assert stopped.artifact.facts == whole.artifact.facts
    # No task that was recorded ran twice.
    assert len([name for _, name in ran if name]) == len({name for _, name in ran if name})


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, *(pytest.param(each, marks=pytest.mark.long) for each in (1, 3))])
def test_bytes_do_not_depend_on_workers(catalog: Catalog, tmp_path: Path, workers: int) -> None:
    problem = random_problem(3)
    alone = problem.ingest(catalog.create("alone"), tmp_path / "tables")
    with open_cluster(ClusterOptions(workers=workers)) as cluster:
        shared = problem.ingest(catalog.create("shared"), tmp_path / "tables", cluster)
    assert shared.artifact.digest == alone.artifact.digest
    assert shared.artifact.key == alone.artifact.key


_IDS = st.one_of(st.integers(0, 12), st.integers(0, 1 << 62))
_NAMES = st.text("abz_é ", min_size=1, max_size=4).map(lambda text: "v" + text.strip())


@st.composite
def problems(draw: st.DrawFn) -> TypedProblem:
    """Up to three types and four relations, with ids of either kind."""
    names = draw(st.lists(st.sampled_from(["paper", "author", "field"]), min_size=1, max_size=3, unique=True))
    ids = {name: draw(st.sampled_from([_IDS, _NAMES])) for name in names}
    relations = {}
    for number in range(draw(st.integers(1, 4))):
        ends = draw(st.sampled_from(names)), f"relation{number}", draw(st.sampled_from(names))
        weights = [st.integers(1, 5)] if draw(st.booleans()) else []
        rows = st.lists(st.tuples(ids[ends[0]], ids[ends[2]], *weights), min_size=1, max_size=12)
        relations[ends] = draw(rows)
    used = {each for source, _, target in relations for each in (source, target)}
    listed = draw(st.lists(st.sampled_from(sorted(used)), max_size=2, unique=True))
    vertices = {name: draw(st.lists(ids[name], min_size=1, max_size=8)) for name in listed}
    return TypedProblem(relations, vertices, draw(st.sampled_from(["add", "drop"])))


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(problem=problems())
def test_random_tables(tmp_path_factory: pytest.TempPathFactory, problem: TypedProblem) -> None:
    folder = tmp_path_factory.mktemp("random")
    graph = problem.ingest(Catalog(folder / "catalog").create("g"), folder / "tables")
    check(graph, problem)
    assert [finding.problem for finding in Catalog(folder / "catalog")["g"].verify()] == [None]


@pytest.mark.slow
def test_every_flipped_bit_is_found(catalog: Catalog, tmp_path: Path) -> None:
    graph = random_problem(4, edges=60).ingest(catalog.create("shop"), tmp_path / "tables")
    files = [path for path in sorted(graph.artifact.path.rglob("*")) if path.is_file()]
    assert len(files) > 40
    for file in files:
        if not (size := file.stat().st_size):
            continue
        before = file.read_bytes()
        flip_bit(file, size // 2)
        assert any(finding.problem for finding in catalog["shop"].verify()), file
        file.write_bytes(before)
    assert not any(finding.problem for finding in catalog["shop"].verify())


def _resealed(graph: TypedGraph, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the facts of a manifest, with the right checksum."""
    manifest = graph.artifact.manifest
    change(manifest["facts"])
    write_json(graph.artifact.path / MANIFEST, manifest)


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts["types"][0].update(name="../../item"),
        lambda facts: facts["types"][0].update(count=facts["types"][0]["count"] + 1),
        lambda facts: facts["relations"][0].update(source="nobody"),
        lambda facts: facts["relations"][0].update(name="other"),
        lambda facts: facts["relations"][0].update(source="item", target="user"),
        lambda facts: facts["relations"][0].update(weighted=False),
        lambda facts: facts["relations"].pop(),
        lambda facts: facts.pop("types"),
    ],
)
def test_manifests_that_lie_are_found(
    catalog: Catalog, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    graph = random_problem(5, edges=60).ingest(catalog.create("shop"), tmp_path / "tables")
    _resealed(graph, change)
    assert any(finding.is_damaged for finding in catalog["shop"].verify())


@pytest.mark.parametrize("name", ["a-block-00000", "..", ".", "a.b", "é", "a b", "_a", ""])
def test_paths_with_other_names_are_part_of_no_graph(name: str) -> None:
    assert array_files("graph").fullmatch("relation/a_1/block/00000/indptr/zarr.json")
    for path in (f"relation/{name}/degree/zarr.json", f"type/{name}/original_id/c/0"):
        assert not array_files("graph").fullmatch(path)


def test_graphs_with_types_go_through_archives(catalog: Catalog, tmp_path: Path) -> None:
    problem = random_problem(6, edges=60)
    graph = problem.ingest(catalog.create("shop"), tmp_path / "tables")
    catalog["shop"].export(tmp_path / "shop.tar.zst")
    imported = catalog.import_dataset(tmp_path / "shop.tar.zst", "other")
    assert imported.typed_graph().artifact.digest == graph.artifact.digest
    check(imported.typed_graph(), problem)
    catalog["shop"].collect_garbage()
    assert [finding.problem for finding in catalog["shop"].verify()] == [None]


def test_what_reads_graphs_without_types_refuses_those_with_types(catalog: Catalog, tmp_path: Path) -> None:
    random_problem(7, edges=60).ingest(catalog.create("shop"), tmp_path / "tables")
    dataset = catalog["shop"]
    for reads in (
        dataset.graph,
        dataset.vertices,
    ):
        with pytest.raises(InputError, match="typed_graph"):
            reads()


def test_earlier_versions_refuse_only_graphs_with_types(catalog: Catalog, tmp_path: Path, monkeypatch: Any) -> None:
    graph = random_problem(8, edges=60).ingest(catalog.create("shop"), tmp_path / "tables")
    monkeypatch.setattr("gnnloom.storage.format.manifest.newest_version", lambda _: 1)
    assert catalog["shop"].name == "shop"
    with pytest.raises(FormatError, match="format 2 is newer than 1"):
        Artifact(graph.artifact.path)


def _write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)


@pytest.mark.parametrize(
    ("relations", "vertices", "message"),
    [
        (["user,buys,item=clicks.csv:u,i"], ["user=users.csv:id"], r"clicks\.csv, line 3: .*user has '9'.*--unknown"),
        (["user,buys,item=clicks.csv:u,i", "user,buys,user=knows.csv"], [], "buys.*two relations"),
        (["user,buys,item=clicks.csv:u,i", "user,Buys,user=knows.csv"], [], "two relations"),
        (["user,buys,item=clicks.csv:u,i", "item,rev_buys,user=knows.csv"], [], "derives"),
        (["movie,like,movies=knows.csv"], [], "did you mean movie"),
        (["user,like,User=knows.csv"], [], "did you mean user"),
        (["user,buys,item=clicks.csv:u,i"], ["uesr=users.csv:id"], "did you mean user"),
        (["user,co-buys,item=clicks.csv:u,i"], [], "co_buys"),
        (["../x,buys,item=clicks.csv:u,i"], [], "type '../x'"),
        (["user,buys,item=clicks.csv:u,nothing"], [], "nothing"),
        (["user,buys,item=empty.csv"], [], r"empty\.csv"),
        (["user,buys,item=header.csv:u,i"], [], r"header\.csv"),
        (["user,buys,item=missing.csv"], [], r"missing\.csv"),
        (["user,buys,item=clicks.csv:u,i"], ["user=named.csv:id"], r"numbers in clicks\.csv and names in named\.csv"),
        (["user,buys,item=clicks.csv:u,i", "user,buys,item=clicks.csv:u,i"], [], "twice"),
        (["user,buys=clicks.csv"], [], "SOURCE,NAME,TARGET"),
        (["user,buys,item=clicks.csv:u"], [], "both ends"),
        (["user,buys,item=clicks.csv:u,i,amount"], [], "as weight"),
        (["user,buys,item=clicks.csv:u,i,amount as price"], [], "as weight"),
        (["user,buys,item=clicks.csv:u,i,amount as time"], [], "--merge"),
        (["user,buys,item=clicks.csv:u,i"], ["user=users.csv:id,name"], "alone"),
        (["user,buys,item=clicks.csv:u,i"], ["user"], "TYPE=FILE"),
        ([], ["user=users.csv:id"], "--relation"),
    ],
)
def test_bad_input_gets_one_error(
    catalog: Catalog, tmp_path: Path, monkeypatch: Any, relations: list[str], vertices: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    _write(
        tmp_path,
        clicks="u,i,amount\n1,a,2\n9,b,3\n",
        users="id,name\n1,ann\n",
        knows="1,2\n2,1\n",
        named="id\nann\n",
        empty="",
        header="u,i\n",
    )
    dataset = catalog.create("shop")

    def ingest() -> None:
        tables = TypedTables.open(parse_relations(relations), parse_vertices(vertices), {})
        ingest_typed_graph(dataset, tables, IngestOptions(), TypedOptions(), InProcessCluster())

    with pytest.raises(GnnloomError, match=message):
        ingest()
    assert dataset.artifacts() == []


def test_a_list_without_relations_is_noted(catalog: Catalog, tmp_path: Path) -> None:
    problem = TypedProblem({("user", "buys", "item"): [(1, 2)]}, {"usr": [1]})
    graph = problem.ingest(catalog.create("g"), tmp_path / "t")
    assert typed_notes(graph) == ["type usr: no relation has its vertices; did you mean user?"]
    assert parse_relations(["user, buys, item = clicks.csv:a,b"]) == parse_relations(["user,buys,item=clicks.csv:a,b"])


def test_an_option_that_relations_cannot_have_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rev_NAME"):
        random_problem(1, edges=9).ingest(catalog.create("g"), tmp_path / "t", None, IngestOptions(undirected=True))


def test_the_order_of_tables_does_not_change_the_graph_and_other_tables_do(catalog: Catalog, tmp_path: Path) -> None:
    problem = random_problem(9, edges=40)
    first = problem.ingest(catalog.create("g"), tmp_path / "t")
    backwards = TypedProblem(dict(list(problem.relations.items())[::-1]), dict(list(problem.vertices.items())[::-1]))
    assert backwards.ingest(catalog["g"], tmp_path / "t").artifact.key == first.artifact.key
    fewer = TypedProblem({ends: rows for ends, rows in problem.relations.items() if ends[1] != "like"}, {})
    with pytest.raises(ExistsError, match="--add"):
        fewer.ingest(catalog["g"], tmp_path / "t")


def test_self_loops_are_kept_or_removed_within_a_type_only(catalog: Catalog, tmp_path: Path) -> None:
    problem = TypedProblem({("a", "x", "a"): [(1, 1), (1, 2)], ("a", "y", "b"): [(1, 1), (2, 1)]}, {})
    kept = problem.ingest(catalog.create("kept"), tmp_path / "t")
    removed = problem.ingest(catalog.create("removed"), tmp_path / "t", None, IngestOptions(self_loops="remove"))
    assert [each.nnz for each in kept.relations] == [2, 2]
    assert [each.facts["self_loops"] for each in kept.relations] == [1, 0]
    assert [each.nnz for each in removed.relations] == [1, 2]


def test_projection_adds_up_what_the_tables_need(tmp_path: Path) -> None:
    problem = random_problem(10)
    tables = problem.write(tmp_path)
    found = project_typed_ingest(tables, IngestOptions(), tmp_path, 2, DEFAULT_MEMORY)
    assert found.edges == sum(map(len, problem.relations.values()))
    assert found.vertices >= 90
    assert found.spill_bytes > 0
    assert not re.findall("calibration", " ".join(path.name for path in tmp_path.iterdir()))


def test_all_edges_may_be_left_out(catalog: Catalog, tmp_path: Path) -> None:
    problem = TypedProblem({("a", "x", "b"): [(1, 1), (1, 2)]}, {"a": [7]}, "drop")
    graph = problem.ingest(catalog.create("g"), tmp_path / "t")
    check(graph, problem)
    assert graph.relation("x").facts["left_out"] == 2
    assert np.count_nonzero(graph.relation("x").degree()) == 0
    assert [finding.problem for finding in catalog["g"].verify()] == [None]


@pytest.mark.parametrize("role", ["", "weight", "time"])
@pytest.mark.parametrize("capacity", [1 << 20, 8])
def test_parallel_edges_are_kept_in_the_order_of_the_table(
    catalog: Catalog, tmp_path: Path, role: str, capacity: int
) -> None:
    """Two payments between the same accounts are two edges, however few entries are sorted at a time."""
    rng = np.random.default_rng(3)
    payer, payee, amount = rng.integers(0, 6, 120), rng.integers(0, 4, 120), rng.integers(1, 1000, 120)
    # More copies of one edge than are sorted at a time.
    payer[40:70], payee[40:70] = 2, 3
    lines = [f"{a},{b},{c}" for a, b, c in zip(payer, payee, amount, strict=True)]
    (tmp_path / "payments.csv").write_text("\n".join(["from,to,amount", *lines]) + "\n")
    columns = "from,to" + (f",amount as {role}" if role else "")
    relations = parse_relations([f"account,pays,shop={tmp_path / 'payments.csv'}:{columns}"])
    cluster = InProcessCluster(scratch=Scratch(sorted_entries=capacity))
    how = IngestOptions(merge="keep"), TypedOptions(), cluster
    graph = ingest_typed_graph(catalog.create("g"), TypedTables.open(relations, {}, {}), *how)
    pays = graph.relation("pays")
    order = np.lexsort((np.arange(120), payer, payee))
    sources, targets, values = (
        np.concatenate(each)
        for each in zip(*((a, b, np.empty(0) if c is None else c) for a, b, c in pays.edge_blocks()), strict=True)
    )
    np.testing.assert_array_equal(targets, np.unique(payee, return_inverse=True)[1][order])
    np.testing.assert_array_equal(sources, np.unique(payer, return_inverse=True)[1][order])
    if role:
        np.testing.assert_array_equal(values, amount[order])
    distinct = len({(a, b) for a, b in zip(payer.tolist(), payee.tolist(), strict=True)})
    assert (pays.nnz, pays.parallel, pays.facts["duplicates"]) == (120, 120 - distinct, 0)
    assert [finding.problem for finding in catalog["g"].verify()] == [None]
    # A manifest that says that there are none is found to lie.
    _resealed(graph, lambda facts: facts["relations"][0].pop("parallel"))
    assert any(finding.is_damaged for finding in catalog["g"].verify())


def test_graphs_without_types_keep_no_equal_edges(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_text("0 1\n0 1\n1 2\n")
    source = open_edges(None, [str(tmp_path / "e.txt")])
    with pytest.raises(InputError, match="merge 'keep'"):
        ingest_graph(catalog.create("g"), source, IngestOptions(merge="keep"), InProcessCluster())
