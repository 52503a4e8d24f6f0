"""`gnnloom features` and `look` say how vertex tables are read, and ask about what they leave open."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import gnnloom
from gnnloom.workflows.cli.main import cli

NODES = (
    'node_id,label,train_mask,val_mask,test_mask,feat\n0,1,True,False,False,"0.1, 0.2"\n'
    '1,0,False,True,False,"0.3, 0.4"\n2,1,False,False,True,"0.5, 0.6"\n'
)
PEOPLE = "id,age,sector,fold\n2,30,bank,train\n0,40,shop,val\n1,50,bank,test\n"


def call(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--catalog", str(folder / "catalog"), *words])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "edges.txt").write_text("0 1\n1 2\n2 0\n")
    (tmp_path / "people.csv").write_text(PEOPLE)
    assert call(tmp_path, "ingest", "g", str(tmp_path / "edges.txt"), "--workers", "0").exit_code == 0
    return tmp_path


def features(folder: Path, *words: str) -> Result:
    return call(folder, "features", "g", *words, "--workers", "0")


def test_features_says_how_tables_are_read_unless_it_is_quiet(folder: Path) -> None:
    file = folder / "people.csv"
    words = ["--feature", f"{file}:age", "--label", f"{file}:sector", "--split", f"{file}:fold", "--by-id"]
    planned = features(folder, *words, "--plan", "--json")
    assert json.loads(planned.stdout)["tasks"] > 0
    result = features(folder, *words, "--json")
    assert result.exit_code == 0, result.output
    # The first command of an installation also says that it compiles kernels.
    read = planned.stderr.splitlines()
    assert read == result.stderr.splitlines()[: len(read)]
    shown = [line.strip() for line in read]
    assert shown[0] == f"{file}: text, fields between commas; the first line names the columns"
    assert shown[1:] == [
        "feature from column age", "label from column sector (words)", "split from column fold",
        "the ids of the vertices are in column id",
    ]  # fmt: skip
    assert json.loads(result.stdout)["classes"] == 2
    assert not features(folder, *words, "--quiet").stderr.strip()


@pytest.mark.parametrize("format_of", ["npy", "parquet", "txt"])
def test_every_format_says_how_it_is_read(folder: Path, format_of: str) -> None:
    file = folder / f"x.{format_of}"
    if format_of == "npy":
        np.save(file, np.ones((3, 2), np.float32))
    elif format_of == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({"a": [1.0, 2, 3], "b": [1.0, 2, 3]}), file)
    else:
        file.write_text("1 2\n3 4\n5 6\n")
    result = features(folder, "--feature", str(file))
    assert result.exit_code == 0, result.output
    assert f"{file}: " in result.stderr
    assert "row k belongs to vertex k" in result.stderr


def test_a_look_proposes_the_command_that_stores_a_vertex_table(folder: Path) -> None:
    (folder / "nodes.csv").write_text(NODES)
    for name in ("people.csv", "nodes.csv"):
        result = call(folder, "look", str(folder / name), "--json")
        command = json.loads(result.stdout)["command"]
        for option in ("--feature", "--label", "--split", "--by-id"):
            assert option in command
        words = shlex.split(command.replace("NAME", "g"))[1:]
        stored = call(folder, *words, "--workers", "0", "--add", "--json")
        assert stored.exit_code == 0, stored.output
        found = json.loads(stored.stdout)
        assert (found["train"], found["valid"], found["test"], found["classes"]) == (1, 1, 1, 2)
    shown = call(folder, "look", str(folder / "nodes.csv")).stdout
    assert "feature from column feat (lists of 2)" in shown
    assert "0.1, 0.2" in shown


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("31336\t0\t1\t1\tNeural\n1061127\t1\t0\t0\tRules\n1106406\t0\t0\t1\tNeural\n", ":2-4 --label"),
        (",id,x\n0,0,0.5\n1,1,1.5\n2,2,2.5\n", "x.txt:x --by-id"),
        ("node_id\tfeature\tlabel\n0\t0,1,1\t2\n1\t1,0,0\t0\n2\t0,0,1\t1\n", "x.txt:feature --label"),
        ("id,x,color\n0,0,blue\n1,1,red\n2,2,blue\n3,3,red\n", "x.txt:x --label"),
    ],
)
def test_vertex_tables_are_told_from_edges(tmp_path: Path, text: str, option: str) -> None:
    (tmp_path / "x.txt").write_text(text)
    command = gnnloom.look(tmp_path / "x.txt").command
    assert command.startswith("gnnloom features NAME --feature")
    assert option in command


@pytest.mark.parametrize(
    "text",
    [
        "src,dst\n0,1\n1,2\n",
        "id,source,target\n0,5,6\n1,6,7\n",
        "user_id,item_id,rating\n1,7,2.5\n2,8,3.5\n",
        "user_id,item_id,label\n1,7,0\n2,8,1\n3,9,0\n",
        "name,friend\nann,bob\nbob,cy\n",
        ",src,dst\n0,1,2\n1,2,3\n",
        "1 2\n2 3\n",
        "0 1 0.5\n1 2 1.5\n",
    ],
)
def test_edges_are_not_taken_for_vertex_tables(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.txt").write_text(text)
    assert gnnloom.look(tmp_path / "x.txt").command.startswith("gnnloom ingest NAME")


def test_arrays_are_proposed_as_vertex_data(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones((4, 3)), y=np.arange(4), train_mask=np.ones(4, bool))
    assert "d.npz:x --label" in gnnloom.look(tmp_path / "d.npz").command
    np.save(tmp_path / "x.npy", np.ones((4, 3)))
    assert gnnloom.look(tmp_path / "x.npy").command.startswith("gnnloom features NAME --feature")


def test_ids_that_are_not_read_are_a_question(folder: Path) -> None:
    file = folder / "people.csv"
    result = features(folder, "--feature", f"{file}:age")
    assert result.exit_code
    for word in ("column id looks like", "--by-id", "--no-by-id"):
        assert word in str(result.exception)
    assert features(folder, "--feature", f"{file}:age", "--no-by-id").exit_code == 0
    (folder / "x.csv").write_text("id,x\n2,0.5\n0,1.5\n1,2.5\n")
    assert "--no-by-id" in str(features(folder, "--feature", str(folder / "x.csv"), "--add").exception)
    (folder / "rows.csv").write_text("id,x\n0,0.5\n1,1.5\n2,2.5\n")
    assert features(folder, "--feature", f"{folder}/rows.csv:x", "--add").exit_code == 0


@pytest.mark.parametrize(
    ("labels", "note"),
    [
        ([0, 255, 1], '253 of 256 classes do not occur; if 255 means "no label", write -1'),
        ([0, 3, 1], "1 of 4 classes does not occur"),
        ([0, 1, 2], ""),
        (["Red", "red", "blue"], "'Red' and 'red' differ only in the case"),
        (["a|b", "b", "c"], "'a|b' seems to be several classes"),
        (["red", "blue", "blue"], ""),
    ],
)
def test_odd_classes_are_noted(folder: Path, labels: list[int] | list[str], note: str) -> None:
    np.save(folder / "y.npy", np.array(labels))
    stderr = features(folder, "--label", str(folder / "y.npy")).stderr
    assert note in stderr
    assert ("note: " in stderr) == bool(note)


def test_labels_that_are_the_split_are_noted(folder: Path) -> None:
    file = folder / "people.csv"
    np.save(folder / "y.npy", np.array([1, 2, 3]))
    words = ["--label", str(folder / "y.npy"), "--split", str(folder / "y.npy")]
    assert "the labels and the split are the same" in features(folder, *words).stderr
    words = ["--label", f"{file}:fold", "--split", f"{file}:fold", "--by-id", "--add"]
    assert "the labels and the split are the same" in features(folder, *words).stderr
    words = ["--label", f"{file}:fold", "--by-id", "--add"]
    assert "the labels are the parts of a split (test, train, val)" in features(folder, *words).stderr
    words = ["--label", f"{file}:sector", "--split", f"{file}:fold", "--by-id", "--add"]
    assert "note" not in features(folder, *words).stderr


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--missing", "0"], "--feature"),
        (["--feature", "people.csv:ages"], "no column ages; the columns are id, age, sector, fold"),
        (["--feature", "people.csv:age", "--missing-indicator"], "--missing 0"),
        (["--feature", "people.csv:sector", "--by-id", "--categories", "1"], "more than 1 different words"),
        (["--feature", "people.csv:age", "--ids-file", "other.csv:id"], "other.csv:id: expected the column of ids"),
        (["--label", "people.csv:age,sector", "--by-id"], "column sector: expected numbers, found words"),
        (["--split", "people.csv:age,sector", "--by-id"], "2 columns; expected one column of a split, or masks"),
        (["--split", "people.csv:age", "--by-id"], "column age: expected a split code"),
        (["--feature", "people.csv:age", "--split-index", "0", "--no-by-id"], "--split-index 0"),
    ],
)
def test_refusals_name_the_cause_and_leave_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], named: str
) -> None:
    monkeypatch.chdir(folder)
    result = features(folder, *words)
    assert result.exit_code
    assert named in f"{result.exception} {result.output}"
    assert not [path for path in (folder / "catalog").rglob("vertices/*") if path.is_dir()]
