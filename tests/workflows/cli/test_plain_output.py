"""Names, paths and errors are text on a terminal: no markup, links, emoji codes or control characters are obeyed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gnnloom.storage import Catalog
from gnnloom.storage.wording import visible
from gnnloom.workflows.cli.main import cli
from gnnloom.workflows.cli.terminal.output import show, show_rows
from gnnloom.workflows.cli.terminal.plain import PlainConsole, styled

HOSTILE = ["[/n1]", "[bold]v2", "[link=http://x.org]v3[/link]", ":smile:", "a\\[b]", "[red", "(0, [1])"]
CONTROLS = ["\x1b[31mred", "a\rb", "a\x07", "\x9b31m", "a\u202eb", "a\u2028b", "\x1b]8;;http://x.org\x1b\\x", "\udcff"]


def call(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--catalog", str(folder), *words], terminal_width=200)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("wide", [False, True])
def test_cells_titles_and_headings_show_what_data_hold(
    capsys: pytest.CaptureFixture[str], name: str, wide: bool
) -> None:
    rows = [(name, "1"), ("x" * (300 if wide else 1), "2")]
    show_rows((name, "rank"), rows, title=f"best of {name}")
    show({"vertex": name, "names": [name, "b"]}, as_json=False, title=f"graph of {name}")
    shown = capsys.readouterr().out
    assert shown.count(name) >= 5


@pytest.mark.parametrize("name", CONTROLS)
def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str], name: str) -> None:
    show_rows(("name", ""), [(name, "1"), (f"{name}\n2", "2")], title=name)
    console = PlainConsole()
    console.print(styled("a", (name, "bold")), name)
    shown = capsys.readouterr().out
    assert not any(character in shown for character in "\x1b\r\x07\x9b\u202e\u2028\udcff")
    assert shown.count(visible(name)) >= 3
    assert "\\n2" in shown


def test_wide_and_combining_characters_stay(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(("name", "n"), [("日本語", "1"), ("e\u0301", "2"), ("Zoë", "3")])
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("日本語", "e\u0301", "Zoë"))
    assert visible("tab\tand\nline") == "tab\\tand\nline"


@pytest.mark.parametrize("name", ["q[/x]", "[bold]", "[link=http://x.org]"])
def test_folders_with_brackets_are_shown_as_they_are(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    (tmp_path / f"{name}.txt").parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / f"{name}.txt").write_text("a b\nb c\nc a\n")
    assert call(root, "ingest", "g", str(tmp_path / f"{name}.txt"), "--ids", "names", "--workers", "0").exit_code == 0
    for words in (("tree",), ("ls",), ("du",), ("lineage", "g"), ("show", "g")):
        result = call(root, "catalog", *words)
        assert result.exit_code == 0, result.output
    assert name in "".join(call(root, "catalog", "tree").stdout.split())
    # Messages after the work is done.
    result = call(root, "export", "g", "edges", "--out", str(tmp_path / f"{name}.csv"))
    assert result.exit_code == 0, result.output
    assert (tmp_path / f"{name}.csv").exists()


def test_errors_and_logs_show_the_control_characters_of_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "e.csv").write_text("0,1\n1,2\n2,3\n\x1b[31m,2\n", encoding="utf-8")
    Catalog(tmp_path / "c")
    result = call(tmp_path / "c", "ingest", "g", str(tmp_path / "e.csv"), "--ids", "compact", "--workers", "0")
    assert result.exit_code != 0
    assert "\x1b" not in result.output
    call(tmp_path / "c", "catalog", "ls")
    logging.getLogger("gnnloom").warning("from \x1b]0;title\x07 %s", "\x9bx")
    assert not set("\x1b\x07\x9b") & set(capsys.readouterr().err)
