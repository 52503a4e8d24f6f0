"""What was understood of a file is shown before anything is stored."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import gnnloom
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
    (file,) = json.loads(call(tmp_path, "look", str(path), "--json").stdout)["files"]
    assert "--header" in file["question"]
    assert "--no-header" in file["question"]


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
