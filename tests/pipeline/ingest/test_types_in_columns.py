"""Tables whose rows have the types of both ends become what pandas makes of them."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import gnnloom
from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.stage import ingest_typed_graph
from gnnloom.pipeline.ingest.typed.table import parse_relations
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, TypedGraph
from gnnloom.storage.errors import InputError
from gnnloom.workflows.api.look import look
from gnnloom.workflows.cli.main import cli
from support.covering import examples
from support.typed_tables import FEW_KEYS

_COLUMNS = "a,b,rel as relation,a_type as source type,b_type as target type"
_PREFIXES = "a,b,rel as relation,a as source type before ::,b as target type before ::"


def _ingest(catalog: Catalog, file: Path, columns: str, ends: str = "*,*,*") -> TypedGraph:
    tables = TypedTables.open(parse_relations([f"{ends}={file}:{columns}"]), {}, {})
    cluster = InProcessCluster(scratch=FEW_KEYS)
    return ingest_typed_graph(catalog.create("g"), tables, IngestOptions(), TypedOptions(), cluster)


def _edges(graph: TypedGraph) -> set[tuple[str, ...]]:
    """Source, its type, word, target, its type of every edge."""
    ids = {}
    for each in graph.types:
        found = graph.ids(each.name)
        ids[each.name] = np.array(found.original_name() if found.has_names else found.original_id())
    edges: set[tuple[str, ...]] = set()
    for relation in graph.relations:
        matrix, source, target = relation.to_scipy().tocoo(), relation.source.name, relation.target.name
        word = relation.facts.get("word", relation.name)
        for row, column in zip(matrix.row, matrix.col, strict=True):
            edges.add((str(ids[source][column]), source, word, str(ids[target][row]), target))
    return edges


def _frame(rng: np.random.Generator, edges: int, vertices: int, words: int) -> pd.DataFrame:
    types = rng.choice(["drug", "gene", "disease"], vertices)
    a, b = rng.integers(0, vertices, (2, edges))
    rel = [f"r{word}" for word in rng.integers(0, words, edges)]
    return pd.DataFrame({"rel": rel, "a": a, "a_type": types[a], "b": b, "b_type": types[b]})


def _expected(frame: pd.DataFrame) -> set[tuple[str, ...]]:
    shown = frame.astype(str)
    return set(shown[["a", "a_type", "rel", "b", "b_type"]].itertuples(index=False, name=None))


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(0, 1 << 20), st.integers(1, 200), st.integers(1, 40), st.integers(1, 5), st.booleans())
def test_types_are_those_of_the_rows(
    tmp_path_factory: pytest.TempPathFactory, seed: int, edges: int, vertices: int, words: int, prefixed: bool
) -> None:
    folder = tmp_path_factory.mktemp("t")
    frame = _frame(np.random.default_rng(seed), edges, vertices, words)
    if prefixed:
        for end in "ab":
            frame[end] = frame[f"{end}_type"] + "::" + frame[end].astype(str)
    frame.drop(columns=["a_type", "b_type"] if prefixed else []).to_csv(folder / "kg.csv", index=False)
    graph = _ingest(Catalog(folder / "catalog"), folder / "kg.csv", _PREFIXES if prefixed else _COLUMNS)
    assert _edges(graph) == _expected(frame)
    # No vertex exists but the ends of edges.
    assert graph.num_vertices == len(set(frame["a"]) | set(frame["b"]))


@pytest.mark.slow
def test_many_relations(catalog: Catalog, tmp_path: Path) -> None:
    frame = _frame(np.random.default_rng(1), 200, 90, 60)
    frame.to_csv(tmp_path / "kg.csv", index=False)
    assert _edges(_ingest(catalog, tmp_path / "kg.csv", _COLUMNS)) == _expected(frame)


def test_an_id_of_two_types_is_named(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "kg.csv").write_text("rel,a,a_type,b,b_type\nr,1,drug,2,gene\nr,2,drug,3,gene\n")
    with pytest.raises(InputError, match=r"'2'.*types"):
        _ingest(catalog, tmp_path / "kg.csv", _COLUMNS)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("rows", [3, 40_000])
def test_ids_that_are_distinct_within_a_type_are_joined_with_it(
    catalog: Catalog, tmp_path: Path, kind: str, rows: int
) -> None:
    rng = np.random.default_rng(rows)
    frame = _frame(rng, rows, 12, 3)
    frame["b_type"] = rng.choice(["drug", "gene"], rows)
    file = tmp_path / f"t.{kind}"
    frame.to_csv(file, index=False) if kind == "csv" else frame.to_parquet(file)
    graph = _ingest(catalog, file, _COLUMNS.replace(" type", " type joined by ::"))
    for end in "ab":
        frame[end] = frame[f"{end}_type"] + "::" + frame[end].astype(str)
    assert _edges(graph) == _expected(frame)


def test_look_joins_ids_that_two_types_share(tmp_path: Path) -> None:
    (tmp_path / "kg.csv").write_text(
        "head_type,head,relation,tail_type,tail,source\n"
        "disease,0,treats,protein,0,x\nprotein,0,binds,protein,1,y\ndisease,1,treats,protein,1,z\n"
    )
    found = look(tmp_path / "kg.csv")
    assert "head_type as source type joined by ::" in found.command
    assert "1 column not read: source" in str(found)
    words = shlex.split(found.command.replace("NAME", "g", 1))[1:]
    result = CliRunner().invoke(cli, ["--catalog", str(tmp_path / "catalog"), *words, "--workers", "0"])
    assert result.exit_code == 0, result.exception
    assert {each.name: each.count for each in Catalog(tmp_path / "catalog").dataset("g").typed_graph().types} == {
        "disease": 2,
        "protein": 2,
    }


def test_a_type_that_has_the_separator_is_named(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("rel,a,a_type,b,b_type\nr,1,x::y,2,z\n")
    with pytest.raises(InputError, match=r"'x::y'.*another separator"):
        _ingest(catalog, tmp_path / "t.csv", _COLUMNS.replace(" type", " type joined by ::"))


def test_an_id_without_a_type_is_named_with_its_line(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "kg.csv").write_text("rel,a,b\nr,drug::1,gene::2\nr,x7,gene::2\n")
    with pytest.raises(InputError, match=r"line 3.*'x7'"):
        _ingest(catalog, tmp_path / "kg.csv", _PREFIXES)


@pytest.mark.parametrize(
    ("ends", "columns", "named"),
    [
        ("drug,*,*", _COLUMNS, "a_type"),
        ("*,*,*", "a,b,rel as relation,a_type as source type,rel as source type", "types"),
        ("*,*,*", "a,b,rel as relation,a as source type before ", "source type"),
        ("*,*,*", "a,b,rel as relation before ::,a_type as source type", "before ::"),
    ],
)
def test_columns_of_types_that_cannot_be(catalog: Catalog, tmp_path: Path, ends: str, columns: str, named: str) -> None:
    (tmp_path / "kg.csv").write_text("rel,a,a_type,b,b_type\nr,1,drug,2,gene\n")
    with pytest.raises(InputError, match=named):
        _ingest(catalog, tmp_path / "kg.csv", columns, ends)


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        (
            "relation,x_index,x_id,x_type,x_name,y_index,y_id,y_type,y_name",
            "x_index,y_index,relation as relation,x_type as source type,y_type as target type",
        ),
        (
            "source_id,source_type,target_id,target_type,weight",
            "source_id,target_id,source_type as source type,target_type as target type",
        ),
    ],
)
def test_look_finds_columns_of_types(tmp_path: Path, header: str, columns: str) -> None:
    file = tmp_path / "kg.csv"
    words = {"relation": "r", "weight": "2"}
    rows = [
        ",".join(words.get(name) or (f"t{row}" if "type" in name else str(row)) for name in header.split(","))
        for row in range(1, 4)
    ]
    file.write_text("\n".join([header, *rows]) + "\n")
    assert f"{file}:{columns}" in look(file).command


def test_look_finds_types_before_ids(tmp_path: Path) -> None:
    file = tmp_path / "drkg.tsv"
    file.write_text("Gene::2\tGG\tGene::3\nGene::2\tGG\tGene::5\nDrug::D\tDG\tGene::2\n")
    found = look(file, format="triples")
    (command,) = (each for each in found.others.values() if "1 as source type before ::" in each)
    words = ["--catalog", str(tmp_path / "catalog"), *shlex.split(command.replace("NAME", "drkg", 1))[1:]]
    stored = CliRunner().invoke(cli, [*words, "--workers", "0"])
    assert stored.exit_code == 0, stored.stderr
    file.write_text("Gene::2\tGG\t3\nGene::2\tGG\tGene::5\nDrug::D\tDG\tGene::2\n")
    assert not any("before" in command for command in look(file, format="triples").others.values())


def test_a_table_with_the_types_of_both_ends_is_not_read_as_vertices_of_one_type(tmp_path: Path) -> None:
    file = tmp_path / "kg.csv"
    file.write_text("source,target,source_type,target_type\n1,2,drug,gene\n2,3,gene,gene\n4,2,drug,gene\n")
    with pytest.raises(InputError, match=r"kg\.csv: the rows have the types of both ends; `relations") as refused:
        gnnloom.ingest("kg", str(file), catalog=tmp_path / "catalog", workers=0)
    assert "source_type as source type,target_type as target type" in str(refused.value)
    asked = gnnloom.ingest("kg", str(file), columns="source,target", catalog=tmp_path / "catalog", workers=0)
    assert asked.graph().num_vertices == 5


def test_columns_that_name_each_vertex_are_no_types(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text("source,target,source_label,target_label\n1,2,ann,bob\n2,3,bob,carl\n3,1,carl,ann\n")
    assert "--relation" not in look(file).command
