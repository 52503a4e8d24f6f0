"""Tables for people: figures and names in one piece, on terminals of any width."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner

from gnnloom.workflows.cli.terminal.options import json_option
from gnnloom.workflows.cli.terminal.output import show, show_groups, show_rows

COLUMNS = ("method", "model", "memory", "scratch", "processor time", "epoch seconds")
ROWS = [
    ("mtkahypar deterministic-quality", "hypergraph", "434.7 MiB", "82.0 MiB", "130.9 s", "12.5 ms"),
    ("metis", "graph", "369.6 MiB", "5.4 MiB", "2.7 s", "9.1 ms"),
]


Shown = Callable[[int, Callable[[], None]], list[str]]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Prints on a terminal of a width; returns the lines."""

    def lines(width: int, print_table: Callable[[], None]) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        print_table()
        found = capsys.readouterr().out.splitlines()
        assert all(len(line) <= width for line in found)
        return found

    return lines


def test_a_table_that_fits_has_lines(shown: Shown) -> None:
    lines = shown(120, lambda: show_rows(COLUMNS, ROWS, "methods"))
    assert lines[0].strip() == "methods"
    assert lines[1].startswith("┏")
    assert sum("│" in line for line in lines) == len(ROWS)


def test_names_and_figures_of_a_table_that_is_too_wide_stay_in_one_piece(shown: Shown) -> None:
    lines = shown(80, lambda: show_rows(COLUMNS, ROWS, "methods of partitioning"))
    assert lines[0] == "methods of partitioning"
    for row in ROWS:
        (line,) = (line for line in lines if line.startswith(row[0]))
        # Without regard to the number of spaces between two columns.
        assert line.split() == " ".join(row).split()


def test_prose_is_folded_and_on_the_left(shown: Shown) -> None:
    prose = "a sentence that goes on for longer than any terminal of eighty columns is wide, and then some"
    lines = shown(80, lambda: show_rows(("name", "summary", "size"), [("first", prose, "1.0 KiB")]))
    cells = [line.split("│") for line in lines if "│" in line]
    assert " ".join(cell[2].strip() for cell in cells) == prose
    assert all(cell[2].startswith(" ") and not cell[2].startswith("  ") for cell in cells)
    assert [cell[1].strip() for cell in cells] == ["first", ""]


def test_groups_have_headings(shown: Shown) -> None:
    groups = {"graph": [("scatter", "16")], "shards": [("write ranks", "1,024")]}
    lines = shown(40, lambda: show_groups(("phase", "tasks"), groups, "work of each phase"))
    assert lines[0] == "work of each phase"
    assert [line.split() for line in lines[2:]] == [
        ["graph"],
        ["scatter", "16"],
        ["shards"],
        ["write", "ranks", "1,024"],
    ]


def test_a_table_has_what_everyone_wants_and_verbose_ones_everything() -> None:
    @click.group()
    @click.option("-v", "--verbose", is_flag=True)
    def program(verbose: bool) -> None:
        del verbose

    @program.command()
    def result() -> None:
        show({"key": "k", "loss": 1.5, "names": ["a", "b"]}, title="run", brief=("loss", "score"))

    brief = CliRunner().invoke(program, ["result"]).output
    assert "loss" in brief
    assert "key" not in brief
    assert "2 more figures (gnnloom -v" in brief
    whole = CliRunner().invoke(program, ["-v", "result"]).output
    assert all(word in whole for word in ("key", "loss", "a, b"))
    assert "more figures" not in whole


def test_keys_and_digests_are_left_to_verbose_tables() -> None:
    @click.group()
    @click.option("-v", "--verbose", is_flag=True)
    def program(verbose: bool) -> None:
        del verbose

    @program.command()
    @json_option
    def result() -> None:
        content = {
            "dataset": "web",
            "key": "0123",
            "vertices_key": "4567",
            "digest": "89ab",
            "layout": "row",
            "parts": 2,
        }
        show(content, title="row shards of web")

    for others in ([], ["-v"], ["--json"]):
        arguments = ["result", *others] if others == ["--json"] else [*others, "result"]
        output = CliRunner().invoke(program, arguments).output
        assert all(word in output for word in ("layout", "parts"))
        assert [word in output for word in ("0123", "4567", "89ab")] == [bool(others)] * 3
        assert ("4 more figures (gnnloom -v" in output) == (not others)
