"""Tables with a row per vertex are told from edges, and vertex data next to edges is pointed out."""

from __future__ import annotations

import json
import logging
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from click.testing import CliRunner, Result

import gnnloom
from gnnloom.storage.errors import InputError
from gnnloom.workflows.cli.main import cli


def call(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--catalog", str(folder / "catalog"), *words])


def written(folder: Path, text: str, name: str = "t.csv") -> str:
    path = folder / name
    path.write_bytes(text.encode())
    return str(path)


def look(folder: Path, path: str) -> dict[str, str]:
    """The commands that a look proposes, by when they are the right ones."""
    found = json.loads(call(folder, "look", path, "--json").stdout)
    others = {each["when"]: each["command"] for each in found.get("others", [])}
    return {name: command.replace(path, "T") for name, command in {"": found["command"], **others}.items()}


VERTICES, EDGES = "if each row is a vertex", "if each row is an edge"
#: Tables that cannot be edges.
SURE = {
    "fractions": ("Account,Balance,Segment\nA17,1200.50,a\nA18,88.10,b\nA21,5,a\n", "Balance", "Account,Balance"),
    "fractions over numbers": ("key,f0,f1,y\n5,0.1,2,a\n3,0.4,3,b\n9,0.7,1,a\n", "f0,f1", "key,f0"),
    "truth": ("who;member;age\nann;True;31\nbo;False;44\ncy;True;31\n", "member,age", "who,member"),
    "dates": ("sensor,since,height\ns1,2020-01-03,5\ns2,2021-05-06,7\ns3,2019-11-30,5\n", "height", "sensor,since"),
    "lists": ('item,embedding\na7,"[0.5, 1]"\nb2,"[2, 3.5]"\n', "embedding", "item,embedding"),
    "fractions without a header": ("7,0.5,3\n2,1.5,3\n9,2.25,4\n", "2-3", "1,2"),
    "decimal commas": ("Konto;Saldo;Alter\nA;1200,50;3\nB;88,10;4\nC;5,00;3\n", "Saldo,Alter", "Konto,Saldo"),
}  # fmt: skip


@pytest.mark.parametrize("case", SURE)
def test_a_table_that_cannot_be_edges_is_a_table_of_vertices(tmp_path: Path, case: str) -> None:
    text, features, ends = SURE[case]
    path, has_commas = written(tmp_path, text), "commas" in case
    words = ["--decimal", ","] if has_commas else []
    found = json.loads(call(tmp_path, "look", path, *words, "--json").stdout)
    assert f"--feature {path}:{features}" in found["command"]
    assert "--by-id" in found["command"]
    assert "others" not in found
    for more in ([], ["--ids", "compact"], ["--ids", "names", "--extra-columns"]):
        result = call(tmp_path, "ingest", "g", path, *words, *more, "--workers", "0")
        assert isinstance(result.exception, InputError)
        assert found["command"].replace("NAME", "g") in str(result.exception)
        assert f"`--columns {ends}`" in str(result.exception)
    assert not (tmp_path / "catalog").exists()


#: Tables that may be either, with what the first command stores, and columns that are read if rows are vertices.
OPEN = {
    "an id with another name": ("uid,age,city\n5,31,Rome\n2,44,Oslo\n9,27,Rome\n7,31,Rome\n", "features", "uid,age"),
    "ids in common with the ages": ("who,age,city\n1,3,Rome\n2,4,Oslo\n3,2,Rome\n4,3,Rome\n", "ingest", "who,age"),
    "names and numbers": ("ann,31,Rome\nbo,44,Oslo\ncy,27,Rome\ndee,5,Rome\n", "features", "1,2"),
    "ids with leading zeros": ("Zip,City,Pop\n01234,Rome,5\n01235,Oslo,6\n01236,Bern,5\n", "ingest", "Zip,City"),
    "a tree": ("id,parent,depth\n1,0,1\n2,1,2\n3,1,2\n4,2,3\n", "features", "id,parent"),
    "few words": ("Kunde;Land;Alter\nann;DE;3\nbo;FR;4\ncy;DE;3\n", "features", "Kunde,Land"),
}  # fmt: skip


@pytest.mark.parametrize("case", OPEN)
def test_a_table_that_may_be_either_is_shown_as_both_and_asked_about(tmp_path: Path, case: str) -> None:
    text, first, ends = OPEN[case]
    path = written(tmp_path, text)
    commands = look(tmp_path, path)
    assert set(commands) == {"", EDGES if first == "features" else VERTICES}
    assert commands[""].startswith(f"gnnloom {first} NAME ")
    words = ["ingest", "g", path, "--ids", "compact", "--workers", "0"]
    error = call(tmp_path, *words).exception
    assert isinstance(error, InputError)
    assert "`gnnloom features g " in str(error)
    assert f"`--columns {ends}`" in str(error)
    # Whoever ignores the other columns is told; whoever names the two has decided.
    header = ["--header"] if "Kunde" in text else []
    noted = call(tmp_path, *words, *header, "--extra-columns", "--json")
    (note,) = (each for each in json.loads(noted.stdout)["notes"] if "may be a vertex" in each)
    assert "`gnnloom features g " in note
    stated = call(tmp_path, "ingest", "h", *words[2:], "--columns", ends, "--json")
    assert stated.exit_code == 0, stated.exception
    assert "may be a vertex" not in stated.output


def test_numbers_that_may_be_classes_of_vertices_are_noted(tmp_path: Path) -> None:
    path = written(tmp_path, "".join(f"{vertex} {vertex % 3}\n" for vertex in range(9)))
    assert look(tmp_path, path)[VERTICES] == "gnnloom features NAME --label T:2 --by-id"
    (note,) = json.loads(call(tmp_path, "ingest", "g", path, "--workers", "0", "--json").stdout)["notes"]
    assert "`gnnloom features g --label " in note
    commented = written(tmp_path, "# from to\n" + "".join(f"{vertex} {vertex % 3}\n" for vertex in range(9)))
    assert VERTICES not in look(tmp_path, commented)


@pytest.mark.parametrize(
    "text",
    [
        "0 1 0.5\n1 2 2\n2 3 1\n",
        "1 20\n2 30\n3 40\n",
        "1,20,0.5\n2,30,1\n3,20,1\n",
        "src,dst,age\n1,20,31\n2,30,44\n",
        "a,b,weight\n1,2,0.5\n2,3,1\n3,4,1\n",
        "customer,supplier,amount\n1,20,0.5\n2,30,1\n3,20,1\n",
        "user,item,rating\n1,100,5\n1,101,3\n2,100,4\n",
        "user,item\n1,100\n1,101\n2,100\n",
        "node,target\n1,2\n1,3\n2,3\n",
        "child,parent\n1,0\n2,0\n3,1\n",
        "name,boss\nann,bob\nbob,cy\ncy,dee\n",
    ],
)
def test_ordinary_edges_keep_their_reading_without_a_question_or_a_note(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    commands = look(tmp_path, path)
    assert {VERTICES, EDGES}.isdisjoint(commands)
    assert commands[""].startswith("gnnloom ingest NAME ")
    words = commands[""].replace("T", path).replace("NAME", "g").split()[1:]
    result = call(tmp_path, *words, "--workers", "0", "--json")
    assert result.exit_code == 0, result.exception
    assert "vertex (" not in result.output


PEOPLE = {"uid": [5, 2, 9, 7], "age": [31, 44, 27, 31], "sex": ["m", "f", "f", "m"]}
AGES = {"fractions": [0.5, 2, 3, 4], "whole floats": [31.0, 44, 27, 31]}
FRAMES = [pd.DataFrame(PEOPLE), pa.table(PEOPLE), *(pa.table({**PEOPLE, "age": ages}) for ages in AGES.values())]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(FRAMES)))
def test_frames_and_parquet_files_of_vertices_are_not_stored_as_edges(tmp_path: Path, number: int) -> None:
    frame: Any = FRAMES[number]
    proposed = 'feature=(source, ["age"]), label=(source, ["sex"]), by_id=True)'
    assert f'gnnloom.features("NAME", {proposed}' in str(gnnloom.look(frame))
    with pytest.raises(InputError) as error:
        gnnloom.ingest("g", frame, catalog=tmp_path / "catalog", workers=0)
    assert f'`gnnloom.features("g", {proposed}`' in str(error.value)
    assert 'columns="uid,age"' in str(error.value)
    path = tmp_path / "people.parquet"
    pa.parquet.write_table(pa.table(frame), path)
    command = look(tmp_path, str(path))[""]
    assert command == "gnnloom features NAME --feature T:age --label T:sex --by-id"
    refused = call(tmp_path, "ingest", "g", str(path), "--workers", "0").exception
    assert command.replace("T", str(path)).replace("NAME", "g") in str(refused)
    # The call that is proposed stores the rows.
    edges = pd.DataFrame({"u": [5, 2, 9], "v": [2, 9, 7]})
    found = gnnloom.ingest("h", edges, ids="compact", catalog=tmp_path / "catalog", workers=0)
    gnnloom.features(found, feature=(frame, ["age"]), label=(frame, ["sex"]), by_id=True, catalog=tmp_path / "catalog")
    assert (
        call(tmp_path, "ingest", "i", str(path), "--columns", "uid,sex", "--ids", "names", "--workers", "0").exit_code
        == 0
    )


def archive(folder: Path) -> str:
    parts: dict[str, Any] = {f"{part}_mask": np.arange(3) == at for at, part in enumerate(("train", "val", "test"))}
    edge_index, rows = np.array([[0, 1, 2, 0], [1, 2, 0, 2]]), np.eye(3, dtype=np.float32)
    arrays: dict[str, Any] = {"edge_index": edge_index, "weight": np.ones(4), "x": rows, "y": np.arange(3)}
    np.savez(folder / "a.npz", **arrays, **parts)
    return str(folder / "a.npz")


def test_vertex_data_next_to_edges_in_an_archive_is_pointed_out_with_the_command(tmp_path: Path) -> None:
    path = archive(tmp_path)
    command = "gnnloom features NAME --feature T:x --label T:y --split T"
    assert look(tmp_path, path) == {"": "gnnloom ingest NAME T", "then, for the vertex data": command}
    result = call(tmp_path, "ingest", "g", path, "--weights", "--workers", "0", "--json")
    (note,) = (each for each in json.loads(result.stdout)["notes"] if "vertex data" in each)
    named = command.replace("T", path).replace("NAME", "g")
    assert f"`{named}`" in note
    stored = call(tmp_path, *named.split()[1:], "--workers", "0", "--json")
    assert json.loads(stored.stdout)["features"] == 3
    assert json.loads(stored.stdout)["train"] == 1


def test_an_archive_of_several_splits_names_one(tmp_path: Path) -> None:
    masks: dict[str, Any] = {
        f"{part}_mask": np.eye(3, dtype=bool)[:, [at, at]] for at, part in enumerate(("train", "valid", "test"))
    }
    np.savez(tmp_path / "b.npz", row=np.arange(3), col=np.array([1, 2, 0]), labels=np.arange(3), **masks)
    command = look(tmp_path, str(tmp_path / "b.npz"))["then, for the vertex data"]
    assert command == "gnnloom features NAME --label T:labels --split T --split-index 0"
    assert call(tmp_path, "ingest", "g", str(tmp_path / "b.npz"), "--workers", "0").exit_code == 0
    words = command.replace("T", str(tmp_path / "b.npz")).replace("NAME", "g").split()[1:]
    assert call(tmp_path, *words, "--workers", "0").exit_code == 0


def test_an_archive_without_vertex_data_has_no_note(tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", edge_index=np.array([[0, 1], [1, 2]]), edge_attr=np.ones((2, 2)), weight=np.ones(2))
    assert list(look(tmp_path, str(tmp_path / "c.npz"))) == [""]


def test_python_and_recipes_point_out_vertex_data_in_their_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = archive(tmp_path)
    with caplog.at_level(logging.WARNING):
        gnnloom.ingest("g", path, catalog=tmp_path / "catalog", workers=0)
    assert f'`gnnloom.features("g", feature="{path}:x", label="{path}:y", split="{path}")`' in caplog.text
    recipe = '[dataset]\nname = "r"\n[source]\npath = "{}"\n[partition]\nmethod = "random"\n[train]\nranks = 1\n'
    (tmp_path / "r.toml").write_text(recipe.format(path))
    error = call(tmp_path, "run", str(tmp_path / "r.toml"), "--plan").exception
    assert f'set format = "files", feature = "{path}:x", label = "{path}:y", split = "{path}"' in str(error)


def test_tensors_of_a_graph_that_nothing_reads_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ends = torch.tensor([[0, 1], [1, 2]])
    data = {"x": torch.eye(3), "edge_index": ends, "pos": torch.zeros(3, 2), "edge_attr": torch.ones(2, 1)}
    with caplog.at_level(logging.WARNING):
        gnnloom.ingest("g", data, catalog=tmp_path / "catalog", workers=0)
    assert "pos has a row per vertex and is not stored" in caplog.text
    torch.save({**data, "num_nodes": 3}, tmp_path / "d.pt")
    result = call(tmp_path, "ingest", "h", str(tmp_path / "d.pt"), "--workers", "0", "--json")
    assert any("pos has a row per vertex" in note for note in json.loads(result.stdout)["notes"])


def test_a_table_in_parts_is_joined_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes").mkdir()
    for part in range(5):
        written(tmp_path / "nodes", f"id,age\n{part},{part + 0.5}\n", f"part-0000{part}.csv")
    command = look(tmp_path, "nodes/part-*")[""].replace("T", "nodes/part-*")
    joins, _, stores = command.partition(" && ")
    assert stores == "gnnloom features NAME --feature nodes-joined.csv:age --by-id"
    assert not subprocess.run(["bash", "-c", joins], check=True).returncode
    assert (tmp_path / "nodes-joined.csv").read_text() == "id,age\n" + "".join(f"{k},{k + 0.5}\n" for k in range(5))
    error = call(tmp_path, "ingest", "g", "nodes/part-*", "--workers", "0").exception
    assert joins in str(error)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\nb\na\nb\n", "--label T"),
        ("a\nb c\na\nb c\n", "--label T"),
        ("0.5\n1.5\n2\n", "--feature T:1"),
        ("1\n0\n1\n0\n", "--label T"),
    ],
)
def test_a_file_of_one_column_has_a_row_per_vertex(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text, "y.txt")
    assert look(tmp_path, path)[""] == f"gnnloom features NAME {words}"
    named = f"gnnloom features g {words.replace('T', path)}"
    assert f"`{named}`" in str(call(tmp_path, "ingest", "g", path).exception)
    edges = written(tmp_path, f"0 1\n1 {text.count(chr(10)) - 1}\n", "e.txt")
    assert call(tmp_path, "ingest", "g", edges, "--workers", "0").exit_code == 0
    assert call(tmp_path, *named.split()[1:], "--workers", "0").exit_code == 0


def test_rows_that_begin_with_vertex_1_are_refused_with_the_remedy(tmp_path: Path) -> None:
    path, table = written(tmp_path, "1 2\n2 3\n3 1\n", "e.txt"), written(tmp_path, "a\nb\na\n", "y.txt")
    assert call(tmp_path, "ingest", "g", path, "--ids", "compact", "--workers", "0").exit_code == 0
    assert "--by-id" in str(call(tmp_path, "features", "g", "--label", table, "--workers", "0").exception)
    assert call(tmp_path, "ingest", "h", path, "--workers", "0").exit_code == 0
    ids = written(tmp_path, "1,0.5\n2,1.5\n3,2\n", "x.csv")
    error = call(tmp_path, "features", "h", "--feature", ids, "--by-id", "--workers", "0").exception
    assert "--ids compact" in str(error)
