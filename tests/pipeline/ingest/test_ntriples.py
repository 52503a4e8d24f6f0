"""Statements of N-Triples become graphs with types, in the same bytes however the files are divided and read."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import gnnloom
from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.stage import ingest_typed_graph
from gnnloom.pipeline.ingest.typed.triples import statement_tables
from gnnloom.pipeline.sources.ntriples import Statements
from gnnloom.storage import Catalog, Dataset, TypedGraph
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import GnnloomError, InputError
from gnnloom.workflows.cli.main import cli
from support.covering import examples
from support.stopping import run_in_steps
from support.typed_inputs import STATEMENTS

RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"


def _edges(graph: TypedGraph) -> set[tuple[str, str, str]]:
    found = set()
    for relation in graph.relations:
        source, target = graph.original_name(relation.source.name), graph.original_name(relation.target.name)
        matrix = relation.to_scipy().tocoo()
        word = relation.facts.get("word", relation.name)
        found |= {(source[j], word, target[i]) for i, j in zip(matrix.row, matrix.col, strict=True)}
    return found


def _types(graph: TypedGraph) -> dict[str, set[str]]:
    return {each.name: set(graph.original_name(each.name)) for each in graph.types}


#: Names as they are, and as statements may write them.
_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters='<>"\\ \n\r\t')
_IRIS = st.text(_CHARACTERS, min_size=1, max_size=6).map(
    lambda text: "http://x/" + "".join(each for each in text if each > " ")
)
_NODES = st.one_of(_IRIS, st.from_regex(r"_:[a-z0-9][a-z.0-9]{0,2}[a-z]", fullmatch=True))


@st.composite
def _written(draw: st.DrawFn, name: str) -> str:
    """A name in a statement, some of whose characters are escaped."""
    if name.startswith("_:"):
        return name
    ways = [lambda each: each, lambda each: f"\\U{ord(each):08X}"]
    ways += [lambda each: f"\\u{ord(each):04x}" if ord(each) < 1 << 16 else each]
    return f"<{''.join(draw(st.sampled_from(ways))(each) for each in name)}>"


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data(), statements=st.lists(st.tuples(_NODES, _IRIS, _NODES), min_size=1, max_size=20))
def test_random_statements_are_read_in_blocks_and_ranges_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, statements: list[tuple[str, str, str]]
) -> None:
    blanks, ends = st.sampled_from([" ", "\t", "  ", ""]), st.sampled_from(["\n", "\r\n", " # <c> .\n", "\n\n#\n"])
    text = ""
    for statement in statements:
        for name in statement:
            text += data.draw(_written(name)) + data.draw(blanks)
        # A label may have points, so that the point of the statement is apart.
        text += f" .{data.draw(ends)}"
        if data.draw(st.booleans()):
            text += f'{data.draw(_written(statement[0]))} <p> "\\u00e9\\"." . \n'
    path = tmp_path_factory.mktemp("graph") / "g.nt"
    path.write_bytes(text.encode())
    sizes = data.draw(st.integers(1, 200)), data.draw(st.integers(1, 200))
    for columns, (source, target) in {"subject,object": (0, 2), "subject,predicate": (0, 1)}.items():
        edges = Statements.open([str(path)], columns=columns)
        edges = replace(edges, range_bytes=sizes[0], block_bytes=sizes[1])
        chunks = [chunk for span in edges.ranges() for chunk in edges.read_names(span)]
        found = [(s.decode(), t.decode()) for chunk in chunks for s, t in zip(chunk.source, chunk.target, strict=True)]
        assert found == [(each[source], each[target]) for each in statements]
    edges = Statements.open([str(path)], columns="subject,object")
    counted = edges.with_surveys([edges.survey(span) for span in edges.surveys()])
    assert counted.literals == text.count('"\\u00e9\\""') + text.count('"\\u00e9\\"."')


def test_commands_lead_from_statements_to_types(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "g.nt.gz", "wt", encoding="utf-8") as file:
        file.write(STATEMENTS)
    runner, words = CliRunner(), ["--catalog", str(tmp_path / "catalog")]
    shown = json.loads(runner.invoke(cli, ["look", str(tmp_path / "g.nt.gz"), "--json"]).stdout)
    assert shown["command"] == f"gnnloom ingest NAME {tmp_path / 'g.nt.gz'}"
    for name, command in {"whole": shown["command"], "types": shown["others"][0]["command"]}.items():
        result = runner.invoke(cli, [*words, *command.replace("NAME", name).split()[1:], "--workers", "0", "--json"])
        assert result.exit_code == 0, result.exception
        assert "2 statements with literals left out" in json.loads(result.stdout)["notes"][0]
    catalog = gnnloom.Catalog(tmp_path / "catalog")
    whole, types = catalog["whole"].typed_graph(), catalog["types"].typed_graph()
    a, b, c, dog, person, smile = (f"http://x/{each}" for each in ("a", "b", "c", "Dog", "Person", "é😀"))
    knows = {(a, "http://x/knows", b), (b, "http://x/knows", "_:b.1"), ("_:b.1", "http://x/knows", smile)}
    knows.add((smile, "http://x#knows", b))
    assert _edges(types) == knows
    assert _types(types) == {"Dog": {b, c}, "Person": {a}, "entity": {"_:b.1", smile}}
    assert _edges(whole) == knows | {
        (a, RDF_TYPE, person),
        (b, RDF_TYPE, dog),
        (b, RDF_TYPE, person),
        (c, RDF_TYPE, dog),
    }
    assert [each.name for each in whole.types] == ["entity"]


def test_blank_nodes_of_several_files_are_distinct(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}.nt") for number in range(2)]
    for path in paths:
        Path(path).write_text("_:b <http://x/p> <http://x/a> .\n")
    (tmp_path / "literals.nt").write_text('_:b <http://x/p> "alone" .\n')
    dataset = gnnloom.ingest("g", [*paths, str(tmp_path / "literals.nt")], catalog=tmp_path / "catalog", workers=0)
    assert _edges(dataset.typed_graph()) == {(b, "http://x/p", "http://x/a") for b in ("_:b", "_:b@2")}
    assert dataset.typed_graph().artifact.facts["literals"] == 1


def _large(folder: Path) -> list[str]:
    """Statements of some thousand vertices in two files, with types and literals."""
    folder.mkdir()
    for number in range(2):
        lines = [
            f"<http://x/{k * 7 % 997}> <http://x/p{k % 3}> <http://x/{k * k % 991}> .\n" for k in range(number, 4000)
        ]
        lines += [f'<http://x/{k}> <http://x/name> "{k}"@en .\n' for k in range(500)]
        lines += [f"<http://x/{k}> <{RDF_TYPE}> <http://x/T{k % 3}> .\n" for k in range(0, 997, 1 + number)]
        lines += [f"<http://x/{k}> <{RDF_TYPE}> <http://x/T{(k + number) % 3}> .\n" for k in range(0, 500, 3)]
        (folder / f"{number}.nt").write_text("".join(lines))
    return sorted(map(str, folder.iterdir()))


def _ingest(dataset: Dataset, paths: list[str], cluster: Any) -> TypedGraph:
    options = {"rdf_type": "first"}
    tables = statement_tables(paths, options).open(options)
    return ingest_typed_graph(dataset, tables, IngestOptions(), TypedOptions(), cluster)


def test_bytes_do_not_depend_on_ranges_memory_or_interruptions(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = _large(tmp_path / "files")
    whole, _ = run_in_steps(lambda cluster: _ingest(catalog.create("whole"), paths, cluster), 100_000)
    original = Statements.open
    monkeypatch.setattr(
        Statements,
        "open",
        lambda *given, **how: type(opened := original(*given, **how))(
            opened.files, opened.columns, opened.rdf_type, range_bytes=40_000, block_bytes=3_000
        ),
    )
    scratch = Scratch(gathered_bytes=1 << 16, merged_bytes=1 << 16)
    stopped, ran = run_in_steps(lambda cluster: _ingest(catalog.create("stopped"), paths, cluster), 30, scratch=scratch)
    assert len(ran) > 60
    assert stopped.artifact.digest == whole.artifact.digest
    assert stopped.artifact.facts == whole.artifact.facts
    # The first type of a vertex is the one of the first line with it.
    first: dict[str, str] = {}
    for path in paths:
        for line in Path(path).read_text().splitlines():
            subject, predicate, target = line.split()[:3]
            if predicate == f"<{RDF_TYPE}>":
                first.setdefault(subject.strip("<>"), target.strip("<>").removeprefix("http://x/"))
    types = {vertex: name for name, vertices in _types(whole).items() for vertex in vertices}
    assert {vertex: name for vertex, name in types.items() if name != "entity"} == first


@pytest.mark.slow
def test_bytes_do_not_depend_on_workers(catalog: Catalog, tmp_path: Path) -> None:
    paths = _large(tmp_path / "files")
    with open_cluster(ClusterOptions(workers=0)) as cluster:
        alone = _ingest(catalog.create("alone"), paths, cluster)
    with open_cluster(ClusterOptions(workers=2)) as cluster:
        shared = _ingest(catalog.create("shared"), paths, cluster)
    assert shared.artifact.digest == alone.artifact.digest


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("<a> <b> <c>", "line 3: expected a point"),
        ("<a> <b> <c> <g> .", "line 3: expected a point"),
        ("<a> <b> <c> . <d>", "line 3: expected nothing but a comment"),
        ("a <b> <c> .", "line 3: expected a statement"),
        ("<a> _:b <c> .", "line 3: expected a predicate"),
        ("<a> <b> c .", "line 3: expected an object"),
        ("<a> <b> <c d> .", "line 3: an IRI has a blank"),
        ("<a> <b> <c .", "line 3: an IRI has a blank"),
        ("<a> <b> <c", "line 3: an angle bracket is opened"),
        ("<a> <b> <> .", "line 3: expected a vertex name, found an empty one"),
        ("<a> <b> <_:b> .", "line 3: an IRI has .* at its beginning"),
        ("<a> <b> _:.c .", "line 3: expected a label"),
        ("<<<a> <b> <c>>> <d> <e> .", "line 3: statements about statements"),
        (r"<a> <b> <\x41> .", "line 3: expected .uXXXX"),
        (r"<a> <b> <\ud83d> .", "line 3: an escape stands for no character"),
        (r"<a> <b> <\U00110000> .", "line 3: an escape stands for no character"),
        (r'<a> <b> "\x" .', "line 3: expected .uXXXX"),
        ('<a> <b> "c .', "line 3: a literal's double quote"),
        ('<a> <b> "c"@ .', "line 3: expected a language"),
        ('<a> <b> "c"^^int .', "line 3: expected the IRI of a datatype"),
        ("<a> <b> <\udcff> .", "line 3: expected a name in UTF-8"),
        (f"<a> <b> <{'x' * 70_000}> .", "line 3: expected a vertex name of at most"),
    ],
)
def test_a_line_that_is_not_a_statement_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "g.nt"
    path.write_bytes(f"<a> <b> <c> .\n# more\n{line}\n".encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=message) as raised:
        gnnloom.ingest("g", path, catalog=tmp_path / "catalog", workers=0)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ('<a> <b> "c" .\n', {}, "no statement leads to another vertex; there are 1 with literals"),
        (f"<a> <{RDF_TYPE}> <c> .\n", {"rdf_type": "type"}, "no statement leads to another vertex"),
        (f"<a> <{RDF_TYPE}> <c> .\n<a> <b> <d> .\n", {"rdf_type": "type"}, "line 2: no table .* has 'd'"),
        (
            f"<a> <b> <a> .\n<a> <{RDF_TYPE}> <c> .\n<a> <{RDF_TYPE}> <d> .\n",
            {"rdf_type": "type"},
            "line 2: vertex 'a' has the types c and d .*rdf_type=.first",
        ),
        ("<a> <b> <c> .\n", {"columns": "subject,class"}, "expected two of subject, predicate, object"),
        ("<a> <b> <c> .\n", {"columns": "subject,objects"}, "did you mean 'object'|object"),
        ("", {}, "the file is empty"),
    ],
)
def test_statements_that_are_no_graph_are_refused(
    tmp_path: Path, text: str, options: dict[str, Any], message: str
) -> None:
    (tmp_path / "g.nt").write_text(text)
    with pytest.raises(GnnloomError, match=message):
        gnnloom.ingest("g", tmp_path / "g.nt", catalog=tmp_path / "catalog", workers=0, **options)
    assert not (tmp_path / "catalog" / "g").exists()
