"""What was understood of a file is shown before anything is stored."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from click.testing import CliRunner, Result

import gnnloom
from gnnloom.storage.errors import InputError
from gnnloom.workflows.cli.main import cli

TABLE = "# by hand\n;who;whom;w\n0;ann;bob;0.5\n1;bob;cy;2\n2;007;ann;1\n"


def call(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--catalog", str(folder / "catalog"), *words])


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "calls.csv"
    path.write_text(TABLE)
    return str(path)


def test_a_look_names_what_was_decided_and_the_line_that_decided_it(tmp_path: Path, table: str) -> None:
    found = json.loads(call(tmp_path, "look", table, "--weights", "--json").stdout)
    (file,) = found["files"]
    assert (file["separator"], file["header"], file["row_numbers"], file["comments"]) == (";", True, True, 1)
    assert (file["source"], file["target"], file["value"]) == ("who", "whom", "w")
    assert (file["ids"], file["decided_by"]) == ("names", {"line": 3, "id": "ann"})
    assert file["rows"][1] == ["1", "bob", "cy", "2"]
    assert found["command"] == f"gnnloom ingest NAME {table} --weights --ids compact"
    shown = call(tmp_path, "look", table, "--weights").stdout
    for word in ("semicolons", "who", "whom", "'ann' in line 3", "numbers the rows", found["command"]):
        assert word in shown
    assert not (tmp_path / "catalog").exists()


def test_an_open_question_is_shown_with_the_options_that_answer_it(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_text("customer,supplier\nann,bob\nbob,cy\ncy,ann\n")
    found = json.loads(call(tmp_path, "look", str(path), "--json").stdout)
    (file,) = found["files"]
    assert "--header" in file["question"]
    assert "--no-header" in file["question"]
    # A command for each answer, which nobody has to complete.
    assert found["command"] == f"gnnloom ingest NAME {path} --header --ids compact"
    (other,) = (each["command"] for each in found["others"] if "first line is an edge" in each["when"])
    assert other == f"gnnloom ingest NAME {path} --no-header --ids compact"


def test_a_word_over_numbers_names_the_columns_of_names(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    for word, values in (("Betrag", ("1,5", "2")), ("amount", ("1.5", "2")), ("day", ("2024-01-02", "2024-01-03"))):
        path.write_text(f"von;nach;{word}\nann;bob;{values[0]}\nbob;cy;{values[1]}\n")
        (file,) = json.loads(call(tmp_path, "look", str(path), "--json").stdout)["files"]
        assert (file["header"], file["source"]) == (True, "von")
    for first in ("bob;cy;x", "ann;cy;NA", "ann;bob;3"):
        path.write_text(f"{first}\nann;bob;1.5\nbob;cy;2\n")
        (file,) = json.loads(call(tmp_path, "look", str(path), "--json").stdout)["files"]
        assert not file["header"]


def test_ids_that_do_not_begin_at_0_are_made_compact(tmp_path: Path) -> None:
    frame = pd.DataFrame({"u": [7, 8], "v": [8, 9], "score": [0.5, 1]})
    frame.to_parquet(tmp_path / "e.parquet")
    frame.to_csv(tmp_path / "e.csv", index=False)
    for name in ("e.parquet", "e.csv"):
        command = json.loads(call(tmp_path, "look", str(tmp_path / name), "--json").stdout)["command"]
        assert command.endswith(f"{name} --weights --ids compact")
    (tmp_path / "e.csv").write_text("u,v\n0,8\n8,9\n")
    assert "--ids" not in json.loads(call(tmp_path, "look", str(tmp_path / "e.csv"), "--json").stdout)["command"]


def test_an_ingest_says_what_it_understood_unless_it_is_quiet(tmp_path: Path, table: str) -> None:
    words = ["ingest", "calls", table, "--ids", "compact", "--extra-columns", "--workers", "0", "--json"]
    result = call(tmp_path, *words)
    assert result.exit_code == 0, result.output
    assert "semicolons" in result.stderr
    assert "'ann' in line 3" in result.stderr
    assert json.loads(result.stdout)["vertices"] == 4
    assert "semicolons" not in call(tmp_path, *words, "--quiet").stderr


def test_files_that_are_read_alike_are_named_once(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("1 2\n2 3\n")
    result = call(tmp_path, "look", *(str(tmp_path / f"{name}.txt") for name in "abc"), "--json")
    assert len(json.loads(result.stdout)["files"]) == 3
    result = call(tmp_path, "ingest", "g", str(tmp_path / "*.txt"), "--workers", "0")
    assert result.stderr.count("text, fields between blanks") == 1
    assert "2 more" in result.stderr


def test_python_looks_at_files_frames_and_arrays(tmp_path: Path, table: str) -> None:
    assert "'ann' in line 3" in str(gnnloom.look(table))
    frame = pd.DataFrame({"a": ["1", "2"], "b": ["2", "x"]})
    (found,) = gnnloom.look(frame).files
    assert "--ids names" in found.question or found.are_names
    assert gnnloom.look(np.array([[0, 1], [1, 2]])).files[0].format == "npy"


def proposed(folder: Path, text: str, name: str = "e.csv", *words: str) -> tuple[str, dict[str, Any]]:
    """The command that a look at a file proposes, without the name of the file, and the result of that command."""
    path = folder / name
    path.write_text(text)
    command = json.loads(call(folder, "look", str(path), *words, "--json").stdout)["command"]
    result = call(folder, *shlex.split(command.replace("NAME", f"g{len(text)}"))[1:], "--workers", "0", "--json")
    assert result.exit_code == 0, result.exception
    return command.partition(str(path))[2].strip(), json.loads(result.stdout)


@pytest.mark.parametrize(
    ("text", "flags", "weighted"),
    [
        ("0 1 0.5\n1 2 2\n", "--weights", True),
        ("# sparse\n0 1 1 1400000100\n1 2 -1 1400000200\n2 3 1 1400000300\n", "--weights --extra-columns", True),
        ("SRC,DST,RATING,TIME\n41,12,3,160.25\n12,15,2,170.5\n", "--columns SRC,DST,RATING --ids compact", True),
        ("Source,Target,Type,Weight\n0,1,Directed,1.0\n1,2,Directed,2.0\n", "--columns Source,Target,Weight", True),
        ("src,dst,note\n0,1,a b\n1,2,c\n", "--extra-columns", False),
        ("src,dst,score\n0,1,low\n1,2,high\n", "--extra-columns", False),
        ("src,dst,w,w\n0,1,1,2\n1,2,3,4\n", "--columns 1,2,3", True),
        ("src,dst,time\n0,1,14\n1,2,15\n", "--times --merge max", False),
        ("src,dst,who,date\n0,1,a,14\n1,2,b,15\n", "--columns src,dst,date --times --merge max", False),
        (",source id,target id,a,w\n0,5,6,a,1\n1,6,5,b,2\n", "--columns 'source id,target id,w' --ids compact", True),
    ],
)  # fmt: skip
def test_the_command_that_a_look_proposes_reads_the_file(tmp_path: Path, text: str, flags: str, weighted: bool) -> None:
    if "--times" in flags:
        (tmp_path / "t.csv").write_text(text)
        command = json.loads(call(tmp_path, "look", str(tmp_path / "t.csv"), "--json").stdout)["command"]
        assert command.endswith(flags)
        return
    found, result = proposed(tmp_path, text, "e.csv" if "," in text else "e.txt")
    assert (found, result["weighted"]) == (flags, weighted)
    # The error without these flags names them.
    (name,) = tmp_path.glob("e.*")
    error = str(call(tmp_path, "ingest", "other", str(name), "--workers", "0").exception)
    assert all(f"`{flag}`" in error for flag in (flags.split(" --", 1)[0], "--extra-columns"))


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (
            ",user,friend,w\n0,5,3.0,8.2\n1,5,4.0,1.8\n2,4,5.0,1\n",
            "ingest NAME {} --columns user,friend,w --ids compact",
        ),
        (",user,age,group\n7,5,,1\n2,3,4.5,0\n", "features NAME --feature {}:age,group --by-id --missing mean"),
        ("Id,Label,timeset,rank\n0,ann,,0.5\n1,bo,,2\n2,cy,,1\n", "features NAME --feature {}:rank --by-id"),
        (
            "personId:ID,name,age:int,:LABEL\n5,ann,30,P\n6,bo,31,P\n7,cy,32,P\n",
            "features NAME --feature {}:age:int --label {}::LABEL --by-id",
        ),
        (",age,label\nann,33,0\nbo,44,1\n", "features NAME --feature {0}:age --label {0}:label --by-id"),
    ],
)
def test_tables_of_vertices_and_of_edges_are_told_apart(tmp_path: Path, text: str, flags: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    command = json.loads(call(tmp_path, "look", str(path), "--json").stdout)["command"]
    assert command == "gnnloom " + flags.replace("{}", str(path)).replace("{0}", str(path))


@pytest.mark.parametrize(
    ("name", "remedy"), [("part-00000", "'{}/part-*'"), ("out.web", "{}/out.NAME"), ("a.csv", "'{}/*'")]
)
def test_a_folder_of_tables_is_refused_with_the_names_to_give(tmp_path: Path, name: str, remedy: str) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    for each, text in ((name, "1,2\n"), ("_SUCCESS", "")):
        (folder / each).write_text(text)
    assert remedy.format(folder) in str(call(tmp_path, "look", str(folder)).exception)
    found = json.loads(call(tmp_path, "look", f"{folder}/*", "--json").stdout)
    assert [Path(each["file"]).name for each in found["files"]] == [name]


def test_edges_that_say_that_they_have_no_direction_need_the_option(tmp_path: Path) -> None:
    text = "Source;Target;Type;Weight\na;b;Undirected;1.5\nb;c;Undirected;2\n"
    found, result = proposed(tmp_path, text)
    assert found == "--columns Source,Target,Weight --undirected --ids compact"
    assert (result["symmetric"], result["nnz"]) == (True, 7)
    words = ["ingest", "h", str(tmp_path / "e.csv"), "--ids", "compact", "--extra-columns", "--workers", "0"]
    assert "--undirected" in str(call(tmp_path, *words).exception)
    (tmp_path / "e.csv").write_text(text.replace("c;Undirected", "c;Directed"))
    assert "column Type" in str(call(tmp_path, *words).exception)


def test_a_line_per_vertex_is_not_read_as_edges(tmp_path: Path) -> None:
    path = tmp_path / "graph.adjlist"
    path.write_text("# networkx\n0 1 3\n1 2\n2\n3 1 2 0\n")
    for words in ([], ["--extra-columns"]):
        error = str(call(tmp_path, "ingest", "g", str(path), "--workers", "0", *words).exception)
        assert "line 2" in error
        assert "read_adjlist" in error


def test_a_look_shows_what_a_container_holds(tmp_path: Path) -> None:
    pairs = np.array([[0, 1, 2], [1, 2, 0]])
    np.savez(tmp_path / "a.npz", edge_index=pairs, x=np.zeros((3, 2), np.float32))
    torch.save({"edge_index": torch.from_numpy(pairs), "y": torch.arange(3)}, tmp_path / "d.pt")
    scipy.sparse.save_npz(tmp_path / "m.npz", scipy.sparse.coo_array(np.eye(4)))
    (tmp_path / "m.mtx").write_text("%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n2 1 0.5\n3 2 1\n")
    (tmp_path / "g.graph").write_text("3 2\n2\n1 3\n2\n")
    shown = {
        name: call(tmp_path, "look", str(tmp_path / name)).stdout
        for name in ("a.npz", "d.pt", "m.npz", "m.mtx", "g.graph")
    }
    assert "x (3, 2) float32" in shown["a.npz"]
    assert "y (3,) int64" in shown["d.pt"]
    assert "4 edges, 4 vertices" in shown["m.npz"]
    assert "--weights --undirected" in shown["m.mtx"]
    assert "2 undirected edges" in shown["g.graph"]
    (file,) = json.loads(call(tmp_path, "look", str(tmp_path / "a.npz"), "--json").stdout)["files"]
    assert (file["edges"], file["rows"][2]) == (3, ["2", "0"])


def test_plans_have_what_was_understood_in_their_json(tmp_path: Path, table: str) -> None:
    words = ["ingest", "calls", table, "--ids", "compact", "--extra-columns", "--plan", "--workers", "0"]
    (file,) = json.loads(call(tmp_path, *words, "--json").stdout)["files"]
    assert (file["ids"], file["decided_by"]["line"]) == ("names", 3)
    assert "semicolons" in call(tmp_path, *words).stderr


def test_pairs_from_files_say_how_they_are_read_unless_the_command_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("".join(f"{k} {k + 1}\n" for k in range(30)))
    (tmp_path / "valid.csv").write_text("# of May\nfrom,to\n1,2\n")
    (tmp_path / "test.tsv").write_text("3\t4\n")
    np.save(tmp_path / "targets.npy", np.array([[9, 10, 11]]))
    assert call(tmp_path, "ingest", "web", str(tmp_path / "edges.txt"), "--workers", "0").exit_code == 0
    files = ["--valid", str(tmp_path / "valid.csv"), "--test", str(tmp_path / "test.tsv")]
    files += ["--test-targets", str(tmp_path / "targets.npy"), "--workers", "0"]
    plan = call(tmp_path, "links", "web", "file", *files, "--plan", "--json")
    found = {Path(each["file"]).name: each for each in json.loads(plan.stdout)["files"]}
    assert (found["valid.csv"]["source"], found["valid.csv"]["comments"]) == ("from", 1)
    assert found["targets.npy"]["targets"] == 3
    result = call(tmp_path, "links", "web", "file", *files)
    for word in (
        "commas",
        "pairs from from to to",
        "tabs",
        "no header",
        "1 row of 3 targets",
        "numbers, as in the gra",
    ):
        assert word in result.stderr, result.stderr
    assert "commas" not in call(tmp_path, "links", "web", "file", *files, "--quiet").stderr


def test_names_in_pairs_of_a_graph_of_numbers_are_pointed_out_by_their_line(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("".join(f"{k} {k + 1}\n" for k in range(30)))
    call(tmp_path, "ingest", "web", str(tmp_path / "edges.txt"), "--workers", "0")
    (tmp_path / "named.csv").write_text("ann,bob\nbob,ann\n")
    files = ["--valid", str(tmp_path / "named.csv"), "--test", str(tmp_path / "named.csv"), "--workers", "0"]
    result = call(tmp_path, "links", "web", "file", *files)
    assert isinstance(result.exception, InputError)
    assert re.search(r"numbers as ids.* 'ann' in line 1", result.stderr)


def test_several_tables_are_looked_at_one_by_one_and_stored_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tables = {
        "users.csv": "user_id,age,risk\n"
        + "".join(f"u{k},{k + 20}.5,{'low' if k % 2 else 'high'}\n" for k in range(9)),
        "items.csv": "item_id,price\n" + "".join(f"i{k},{k}.25\n" for k in range(5)),
        "clicks.csv": "user_id,item_id,amount\n" + "".join(f"u{k % 9},i{k % 5},{k}.5\n" for k in range(30)),
        "likes.csv": "user_id,item_id\n" + "".join(f"u{k % 7},i{k % 3}\n" for k in range(20)),
    }
    for name, text in tables.items():
        Path(name).write_text(text)
    found = json.loads(call(tmp_path, "look", *tables, "--json").stdout)
    assert [each["file"] for each in found["files"]] == list(tables)
    assert found["others"][3] == {"when": "likes.csv alone", "command": "gnnloom ingest NAME likes.csv --ids compact"}
    words = shlex.split(found["command"].replace("NAME", "shop"))
    assert call(tmp_path, *words[1:], "--workers", "0").exit_code == 0
    graph = gnnloom.Catalog(tmp_path / "catalog")["shop"].typed_graph()
    assert {each.name: each.count for each in graph.types} == {"user": 9, "item": 5}
    assert {each.name: each.nnz for each in graph.relations} == {"clicks": 30, "likes": 20}


DATABASE = {
    "customers.csv": "id,country,age\n" + "".join(f"{k},{'DE' if k % 2 else 'FR'},{20 + k}.5\n" for k in range(1, 9)),
    "products.csv": "id,price,category\n" + "".join(f"{k},{k}.99,{'a' if k % 3 else 'b'}\n" for k in range(1, 6)),
    "orders.csv": "id,customer_id,ordered_at,total\n"
    + "".join(f"{k},{k % 8 + 1},2024-01-{k % 27 + 1:02d},{k}.50\n" for k in range(1, 31)),
    "order_items.csv": "id,order_id,product_id,quantity\n"
    + "".join(f"{k},{k % 30 + 1},{k % 5 + 1},{k % 3 + 1}\n" for k in range(1, 91)),
}
PAYMENTS = {
    "payments.csv": "transaction_id,account,merchant,amount,timestamp,is_fraud\n"
    + "".join(f"{k},A-{k % 7},M{k % 4},{k}.5,2024-01-{k % 27 + 1:02d},{k % 2}\n" for k in range(40)),
    "accounts.csv": "account,age,country\n"
    + "".join(f"A-{k},{30 + k if k else ''},{'DE' if k % 2 else 'FR'}\n" for k in range(7)),
    "merchants.csv": "merchant,rating\n" + "".join(f"M{k},{k}.5\n" for k in range(4)),
}


@pytest.mark.parametrize(
    ("tables", "types", "relations"),
    [
        # A table between two tables has edges, and other references are relations from row to row.
        (
            DATABASE,
            {"customer": 8, "order": 30, "product": 5},
            {"order_customer": ("order", "customer", 30), "order_items": ("order", "product", 30)},
        ),
        ({name: DATABASE[name] for name in ("orders.csv", "customers.csv")}, {"customer": 8, "order": 30}, None),
        (PAYMENTS, {"account": 7, "merchant": 4}, {"payments": ("account", "merchant", 40)}),
    ],
)
def test_columns_with_ids_of_other_tables_become_relations(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tables: dict[str, str],
    types: dict[str, int],
    relations: dict[str, tuple[str, str, int]] | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in tables.items():
        Path(name).write_text(text)
    found = json.loads(call(tmp_path, "look", *tables, "--json").stdout)
    words = shlex.split(found["command"].replace("NAME", "stored"))
    if tables is PAYMENTS:
        assert "payments.csv:account,merchant,amount as weight,timestamp as time,is_fraud as label" in words[-3]
    stored = call(tmp_path, *words[1:], "--workers", "0")
    assert stored.exit_code == 0, stored.stderr
    graph = gnnloom.Catalog(tmp_path / "catalog")["stored"].typed_graph()
    assert {each.name: each.count for each in graph.types} == types
    wanted = relations or {"order_customer": ("order", "customer", 30)}
    assert {each.name: (each.source.name, each.target.name, each.nnz) for each in graph.relations} == wanted
    # Keys of other tables are no features.
    assert "customer_id as feature" not in found["command"]


def test_tables_about_the_same_vertices_become_the_data_of_one_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("payments.csv").write_text("source,target\nanna,bob\nbob,carla\ncarla,anna\ncarla,dora\n")
    Path("people.csv").write_text("id,age,income\nanna,34,52\nbob,41,38\ncarla,29,61\ndora,58,47\n")
    Path("risk.csv").write_text("id,class\nanna,low\nbob,low\ncarla,high\ndora,high\n")
    Path("split.csv").write_text("id,split\ndora,test\ncarla,train\nbob,valid\nanna,train\n")
    found = json.loads(call(tmp_path, "look", "people.csv", "risk.csv", "payments.csv", "split.csv", "--json").stdout)
    assert [each["when"] for each in found["others"]] == ["if each table has vertices of another type"]
    for command in found["command"].replace("NAME", "pay").split(" && "):
        assert call(tmp_path, *shlex.split(command)[1:], "--workers", "0").exit_code == 0, command
    vertices = gnnloom.Catalog(tmp_path / "catalog")["pay"].vertices()
    assert vertices.feature().tolist() == [[34, 52], [41, 38], [29, 61], [58, 47]]
    assert list(vertices.class_names) == ["high", "low"]
    assert vertices.split().tolist() == [1, 2, 1, 3]


@pytest.mark.parametrize(
    "others",
    [
        # Ids in columns of other names; other ids; ends that are called as types are.
        ({"cities.csv": "city,size\nanna,3\nrome,4\n", "pay.csv": "source,target\nanna,bob\nbob,anna\n"}),
        ({"cities.csv": "id,size\nrome,4\noslo,3\n", "pay.csv": "source,target\nanna,bob\nbob,anna\n"}),
        ({"roles.csv": "id,role\nanna,3\nbob,4\n", "pay.csv": "payer_id,payee_id\nanna,bob\nbob,anna\n"}),
    ],
)
def test_tables_about_other_vertices_are_types_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {"people.csv": "id,age\nanna,34\nbob,41\n", **others}.items():
        Path(name).write_text(text)
    found = json.loads(call(tmp_path, "look", "people.csv", *others, "--json").stdout)
    assert found["command"].startswith("gnnloom ingest NAME --vertices 'people=people.csv:id,age as feature'")


@pytest.mark.parametrize("columnar", [{"users"}, {"items", "clicks"}])
def test_tables_of_several_formats_are_stored_by_the_command_for_tables_of_one_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columnar: set[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tables = {
        "users": pd.DataFrame({"user_id": [f"u{k}" for k in range(9)], "age": [k + 20.5 for k in range(9)]}),
        "items": pd.DataFrame({"item_id": [f"i{k}" for k in range(5)], "price": [k + 0.25 for k in range(5)]}),
        "clicks": pd.DataFrame(
            {"user_id": [f"u{k % 9}" for k in range(30)], "item_id": [f"i{k % 5}" for k in range(30)]}
        ),
    }
    for name, frame in tables.items():
        frame.to_csv(f"{name}.csv", index=False)
        frame.to_parquet(f"{name}.parquet", index=False)
    files = {name: f"{name}.{'parquet' if name in columnar else 'csv'}" for name in tables}
    texts = json.loads(call(tmp_path, "look", *(f"{name}.csv" for name in tables), "--json").stdout)
    found = json.loads(call(tmp_path, "look", *files.values(), "--json").stdout)
    expected = texts["command"]
    for name, file in files.items():
        expected = expected.replace(f"{name}.csv", file)
    assert found["command"] == expected
    words = shlex.split(expected.replace("NAME", "shop"))
    result = call(tmp_path, *words[1:], "--workers", "0")
    assert result.exit_code == 0
    for name, kind in (("users", "user"), ("items", "item")):
        lines = result.stderr.splitlines()
        at = next(number for number, line in enumerate(lines) if line.startswith(files[name]))
        assert f"vertices of type {kind} from {kind}_id" in lines[at + 1]
        assert "edges from" not in lines[at]
    graph = gnnloom.Catalog(tmp_path / "catalog")["shop"].typed_graph()
    assert {each.name: each.count for each in graph.types} == {"user": 9, "item": 5}
    assert [each.nnz for each in graph.relations] == [30]


def test_files_whose_row_k_belongs_to_vertex_k_are_stored_by_the_commands_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("e.tsv").write_text("0\t1\n1\t2\n2\t3\n")
    np.save("x.npy", np.eye(4, 3, dtype=np.float32))
    np.save("y.npy", np.array(["c", "a b", "a b", "c"]))
    Path("y.txt").write_text("c\na b\na b\nc\n")
    np.savez("s.npz", train=[0, 1], valid=[2], test=[3])
    for label in ("y.npy", "y.txt"):
        found = json.loads(call(tmp_path, "look", "e.tsv", "x.npy", label, "s.npz", "--json").stdout)
        assert found["command"].endswith(f"--feature x.npy --label {label} --split s.npz")
        for words in found["command"].replace("NAME", label).split(" && "):
            assert call(tmp_path, *words.split()[1:], "--workers", "0").exit_code == 0
        data = gnnloom.Catalog(tmp_path / "catalog")[label].vertices()
        assert (data.num_features, data.class_names) == (3, ("a b", "c"))
        assert data.label(0, 4).tolist() == [1, 0, 0, 1]
    # Two files of labels: which of them is meant is not guessed.
    found = json.loads(call(tmp_path, "look", "e.tsv", "y.npy", "y.txt", "--json").stdout)
    assert found["command"] == ""
    assert len(found["others"]) == 3


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.arange(5) % 2, "--label y.npy"),
        (np.arange(5)[:, None] % 2, "--label y.npy"),
        (np.array(["a", "b", "a", "b", "b"]), "--label y.npy"),
        (np.arange(5) + 0.5, "--target y.npy"),
        (np.ones((5, 1), np.float32), "--label y.npy"),
        (np.eye(5, 3, dtype=np.int8), "--label y.npy"),
        (np.eye(5, 4, dtype=np.float32) / 2, "--target y.npy"),
    ],
)
def test_an_array_that_cannot_be_pairs_is_read_as_vertex_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, array: Any, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("y.npy", array)
    assert json.loads(call(tmp_path, "look", "y.npy", "--json").stdout)["command"] == f"gnnloom features NAME {words}"
    assert f"`gnnloom features g {words}`" in str(call(tmp_path, "ingest", "g", "y.npy").exception)
    Path("e.txt").write_text("0 1\n3 4\n")
    assert call(tmp_path, "ingest", "g", "e.txt", "--workers", "0").exit_code == 0
    assert call(tmp_path, "features", "g", *words.split(), "--workers", "0").exit_code == 0


@pytest.mark.parametrize("name", ["e.csv", "e.parquet"])
def test_a_column_with_an_id_of_each_row_is_not_an_end(tmp_path: Path, name: str) -> None:
    ids = {"payment_id": range(40), "account_id": [k % 7 for k in range(40)], "shop_id": [k % 3 for k in range(40)]}
    frame, path = pd.DataFrame(ids | {"amount": [k + 0.5 for k in range(40)]}), tmp_path / name
    (frame.to_csv if name == "e.csv" else frame.to_parquet)(path, index=False)
    assert "`--columns account_id,shop_id`" in str(call(tmp_path, "ingest", "g", str(path)).exception)
    frame = frame.assign(account_id="A" + frame["account_id"].astype(str), shop_id="S" + frame["shop_id"].astype(str))
    named = frame.rename(columns={"account_id": "account", "shop_id": "shop"})
    (named.to_csv if name == "e.csv" else named.to_parquet)(path, index=False)
    found = json.loads(call(tmp_path, "look", str(path), "--json").stdout)
    assert [each["command"] for each in found["others"]] == [
        f"gnnloom ingest NAME {path} --columns account,shop --ids compact"
    ]


def test_an_array_of_pairs_next_to_a_table_has_no_columns_to_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"user_id": range(9), "age": [k + 20.5 for k in range(9)]}).to_parquet("users.parquet", index=False)
    np.save("knows.npy", np.array([[k, (k + 1 + k % 2) % 9] for k in range(9)]))
    found = json.loads(call(tmp_path, "look", "users.parquet", "knows.npy", "--json").stdout)
    assert [each["when"] for each in found["others"]] == ["if each table has vertices of another type"]
    words = shlex.split(found["others"][0]["command"].replace("NAME", "shop"))
    assert call(tmp_path, *words[1:], "--workers", "0").exit_code == 0, found["others"]
    graph = gnnloom.Catalog(tmp_path / "catalog")["shop"].typed_graph()
    assert [(each.edge_type, each.nnz) for each in graph.relations] == [(("user", "knows", "user"), 9)]


def test_parts_of_one_table_in_several_formats_are_refused_with_the_options(tmp_path: Path) -> None:
    frame = pd.DataFrame({"user_id": [f"u{k}" for k in range(9)], "item_id": [f"i{k % 3}" for k in range(9)]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "b.parquet", index=False)
    for command in (["look"], ["ingest", "shop"]):
        result = call(tmp_path, *command, str(tmp_path / "a.csv"), str(tmp_path / "b.parquet"))
        assert isinstance(result.exception, InputError)
        assert "--relation" in str(result.exception)


def test_names_of_files_and_columns_become_a_command_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("b").mkdir()
    clicks = "".join(f"u{k % 9},s{k % 5}\n" for k in range(30))
    tables = {
        "user-list.csv": 'id,"age, years"\n' + "".join(f"u{k},{k + 20}.5\n" for k in range(9)),
        "shop clicks.csv": "user_id,shop_id\n" + clicks,
        "b/shop clicks.csv": "user_id,shop_id,day\n" + clicks.replace("\n", ",3\n"),
        "gaps.csv": "shop_id,size\n" + "".join(f"s{k},{'' if k == 2 else k + 0.5}\n" for k in range(5)),
    }
    for name, text in tables.items():
        Path(name).write_text(text)
    found = json.loads(call(tmp_path, "look", *tables, "--json").stdout)
    then = [each["command"] for each in found["others"] if each["when"].startswith("then")]
    for command in (found["command"], *then):
        words = shlex.split(command.replace("NAME", "shops"))
        assert call(tmp_path, *words[1:], "--workers", "0").exit_code == 0, command
    dataset = gnnloom.Catalog(tmp_path / "catalog")["shops"]
    assert {each.name for each in dataset.typed_graph().types} == {"user", "user_list", "shop"}
    assert {each.name for each in dataset.typed_graph().relations} == {"shop_clicks", "b_shop_clicks"}
    assert len(dataset.artifacts("vertices")) == 2


def test_tables_of_different_columns_are_never_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, heading in enumerate(("age", "size", "price")):
        rows = "".join(f"{heading[0]}{k},{k}.5\n" for k in range(9))
        Path(f"t{number}.csv").write_text(f"id,{heading}\n{rows}")
    for result in (call(tmp_path, "look", "t*.csv"), call(tmp_path, "ingest", "g", "t*.csv", "--ids", "names")):
        assert "awk" not in f"{result.stdout}{result.exception}"


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_tables_of_different_columns_are_no_parts_of_one_graph(tmp_path: Path, suffix: str) -> None:
    pairs = {"buys": ("user_id", "item_id"), "follows": ("user_id", "friend_id"), "more": ("user_id", "item_id")}
    files = {name: tmp_path / f"{name}.{suffix}" for name in pairs}
    for name, ends in pairs.items():
        frame = pd.DataFrame({end: [k * (1 + at) % 5 for k in range(8)] for at, end in enumerate(ends)})
        _ = frame.to_csv(files[name], index=False) if suffix == "csv" else frame.to_parquet(files[name])
    parts, mixed = ([str(files[name]) for name in names] for names in (("buys", "more"), ("buys", "follows")))
    assert call(tmp_path, "ingest", "one", *parts, "--workers", "0").exit_code == 0
    refused = call(tmp_path, "ingest", "mixed", *mixed, "--workers", "0")
    assert isinstance(refused.exception, InputError)
    assert "follows" in str(refused.exception)
    assert "from user_id to friend_id, but in" in str(refused.exception)
    if suffix == "csv":
        assert call(tmp_path, "ingest", "mixed", *mixed, "--columns", "1,2", "--workers", "0").exit_code == 0
