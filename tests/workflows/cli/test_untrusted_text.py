"""Names, paths and messages of others are text: no command takes them as markup, and no terminal obeys them."""

from __future__ import annotations

import logging
import re
import shutil
import unicodedata
from collections.abc import Iterator
from html import escape
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import gnnloom
from gnnloom.storage import Catalog
from gnnloom.storage.disk.files import write_json
from gnnloom.storage.errors import DamagedWorkError, InputError, in_one_line
from gnnloom.storage.runs.provenance import begin_session
from gnnloom.storage.wording import printable
from gnnloom.trainer.job.rank_log import log_to_stderr
from gnnloom.workflows.cli.main import cli
from gnnloom.workflows.cli.terminal.output import show, show_groups, show_rows
from gnnloom.workflows.cli.terminal.screen import console, say, text
from gnnloom.workflows.report.build import write_report
from gnnloom.workflows.report.facts import RunFacts
from support.lone_training import install
from support.pair_runs import TRAIN, call, shard, write_csv
from support.reported_runs import store_reported, store_run

#: Names that rich, a terminal, a spreadsheet or a browser would take as something else.
HOSTILE = (
    "[/n1]",
    "[bold]v2",
    "[link=http://x.example]v3[/link]",
    ":smile:",
    "\x1b[31mred\x1b[0m",
    "\x1b]8;;http://x.example\x07v6\x1b]8;;\x07",
    "\x9b2J",
    "\u202eevil",
    "a\u2028b",
    "<script>alert(1)</script>",
    "$\\frac{v}$",
    "=HYPERLINK(1)",
    "数据の頂点",
    "e\u0301e\u0301",
    "\\x1b[m",
    "\x7f\x08",
)
#: A folder and a file may have such names, too.
FOLDER = "[link=mailto:x]c[link] [bold]\x1b[31m"


def is_plain(output: str) -> bool:
    """Whether a terminal shows every character as it is."""
    return not any(
        unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp", "Cs"} for character in output.replace("\n", "")
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A catalog with a graph of hostile names, in a folder and from a file of such names, and a run on its links."""
    folder = tmp_path_factory.mktemp("untrusted") / FOLDER
    folder.mkdir()
    root, rng = folder / "catalog", np.random.default_rng(5)
    names = [*HOSTILE, *(f"v{number}" for number in range(30))]
    pairs = {*zip(range(len(names)), [*range(1, len(names)), 0], strict=True)}
    pairs |= {(int(u), int(v)) for u, v in rng.integers(0, len(names), (150, 2)) if u != v}
    rows = [[names[u], names[v]] for u, v in sorted(pairs)]
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        edges = write_csv(folder / "q[bold]\x1b[1m.csv", [["from", "to"], *rows])
        call(root, "ingest", "web", edges, "--header", "--ids", "names", "--undirected", "--workers", "0")
        shard(root, "web", "random", "--test", "0.2")
        call(root, "train", "web/run", "--task", "link", *TRAIN)
        yield root


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    monkeypatch.setenv("COLUMNS", "2000")


def invoke(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["--catalog", str(root), *arguments])


@pytest.mark.slow
def test_targets_are_shown_by_their_whole_names(root: Path) -> None:
    result = invoke(root, "predict", "web/run", "--pairs", write_csv(root / "p.csv", [[n, "v1"] for n in HOSTILE[:10]]))
    assert result.exit_code == 0, result.output
    assert is_plain(result.output)
    for name in HOSTILE[:10]:
        assert re.search(rf"\W{re.escape(printable(name))}\s", result.output), name
    assert invoke(root, "predict", "web/run", "--top", "2").exit_code == 0


@pytest.mark.parametrize(
    "words",
    [
        "catalog ls",
        "catalog show web",
        "catalog tree",
        "catalog tree web --all",
        "catalog lineage web",
        "catalog du",
        "catalog verify web",
        "-v predict web/run",
        "train web/run",
        "export web/run predictions --out {out}.csv",
        "export web edges --out {out}.parquet",
        "catalog export web {out}.tar",
        "partition web --parts 2 --plan",
        "ingest other {edges} --header --ids names --plan --workers 0",
        "ingest other {edges} --header --ids names --workers 0",
        "report web/run --out {out}",
    ],
)
def test_commands_show_paths_as_text(root: Path, tmp_path: Path, words: str) -> None:
    out = root / f"q[bold]\x1b[1m-{abs(hash(words))}"
    edges = root.parent / "q[bold]\x1b[1m.csv"
    result = invoke(root, *(word.format(out=out, edges=edges) for word in words.split()))
    assert result.exit_code == 0, (result.output, result.exception)
    assert is_plain(result.output)
    if "{out}" in words or words == "catalog ls":
        # Titles are folded at the width of their tables.
        shown = printable(str(out if "{out}" in words else root))
        assert shown.replace(" ", "") in re.sub(r"\s", "", result.output)


def test_errors_quote_paths_and_lines_of_files_as_text(root: Path, tmp_path: Path) -> None:
    bad = tmp_path / "\x1b[31m\u202e.csv"
    bad.write_bytes(b"1 2\n\x1b]0;title\x07 [/x]\n")
    for words in (
        ["ingest", "new", str(bad)],
        ["ingest", "new", str(tmp_path / "\x1b[2Jmissing")],
        ["ingest", "new", str(bad), "--\x1b[31m"],
        ["partition", "web", "--parts", "\x1b[31m"],
        ["\x1b[31m"],
        ["predict", "web/run", "--pairs", str(bad)],
        ["run", str(tmp_path / "\x1b[2J.toml")],
        ["catalog", "show", "\x1b[31m"],
    ):
        result = invoke(root, *words)
        assert result.exit_code in {1, 2, 3}, words
        shown = result.output if result.exception is None or isinstance(result.exception, SystemExit) else None
        if shown is None:
            assert result.exception is not None
            reported = in_one_line(result.exception)
            assert reported is not None
            shown = reported[0]
        assert is_plain(shown), words
        assert "\\x1b" in shown, words


@pytest.mark.parametrize("name", HOSTILE)
def test_any_part_of_a_table_is_text(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    show({name: name, "names": [name, name]}, title=name)
    show_rows((name, "b"), [(name, name), ("x" * 40, name)], name)
    show_groups((name, "b"), {name: [(name, name)]}, name)
    console().print(text(("bold", name), name))
    say(name)
    say(name, on_stderr=True)
    shown = capsys.readouterr()
    assert is_plain(shown.out + shown.err)
    # Figures: name, value and two in the list; the table: title, head and three cells; the groups: one less.
    assert shown.out.count(printable(name)) == 5 + 5 + 5 + 2 + 1
    assert shown.err == f"{printable(name)}\n"


@pytest.mark.parametrize("width", [40, 60, 100])
def test_names_of_wide_and_combining_characters_keep_the_columns_straight(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.cells import cell_len

    monkeypatch.setenv("COLUMNS", str(width))
    names = ("数据の頂点", "e\u0301" * 8, "plain", "\x1b[31m")
    show_rows(("name", "score", "another"), [(name, "0.5", "頂点") for name in names])
    lines = capsys.readouterr().out.splitlines()
    assert len({cell_len(line) for line in lines if "0.5" in line}) == 1
    assert all(any(printable(name) in line for line in lines) for name in names)


def test_json_holds_names_as_they_are(root: Path) -> None:
    file = write_csv(root / "json.csv", [[name, "v1"] for name in HOSTILE[:10]])
    first = call(root, "predict", "web/run", "--pairs", file)["first"]
    assert [row["source"] for row in first] == list(HOSTILE[:10])


@pytest.mark.parametrize(
    "error", [InputError("\x1b[31m"), DamagedWorkError("\x1b[31m", "\x9b"), OSError(28, "\x1b", "\x9b")]
)
def test_messages_of_errors_are_plain_wherever_they_are_shown(error: Exception) -> None:
    reported = in_one_line(error)
    assert reported is not None
    assert is_plain(reported[0])
    if isinstance(error, InputError | DamagedWorkError):
        assert is_plain(str(error))


def test_logs_are_plain(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    log_to_stderr(logging.WARNING)
    logging.getLogger("gnnloom.untrusted").warning("%s", "\x1b[31m")
    assert capfd.readouterr().err == "note: \\x1b[31m\n"


def test_a_name_that_the_terminal_cannot_encode_is_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    # What Python makes of a file name that is not UTF-8.
    say("\udcff")
    show_rows(("a",), [("\udcff",)])
    assert capsys.readouterr().out.count("\\udcff") == 2


#: A folder's name and a value of a configuration.
HTML = "<script>$\\frac{$\x1b[31m\u202e&lt;"


def test_notebooks_show_names_as_text(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / HTML)
    catalog = gnnloom.Catalog(tmp_path / HTML)
    write_json(catalog["web"].run_path("run") / "config.json", {"model": HTML})
    run = gnnloom.Run(catalog["web"], "run")
    for html in (catalog._repr_html_(), catalog["web"]._repr_html_(), run._repr_html_()):
        assert escape(printable(HTML)) in html
        assert "<script" not in html
        assert is_plain(html)


@pytest.mark.slow
def test_reports_show_what_a_stranger_wrote_as_text(tmp_path: Path) -> None:
    dataset = store_reported(Catalog(tmp_path / "catalog"))
    run = store_run(dataset, "run", 3, 2)
    begin_session(run.path, {"started": HTML, "host": HTML, "version": HTML}, 0)
    write_json(run.path / "config.json", {**run.config(), "model": HTML, "algorithm": HTML, "seed": HTML})
    page = write_report(RunFacts.gather(dataset, "run"), tmp_path / "report")[0].read_text(encoding="utf-8")
    assert page.count(escape(printable(HTML))) > 5
    assert "<script" not in page
    assert is_plain(page)
