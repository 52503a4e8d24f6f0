"""The manual's commands run, its messages exist, and its claims about files are true."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import gnnloom
from gnnloom.workflows.cli.main import cli
from support.documents import NOT_RUN, Step, fenced_steps
from support.in_process import run_here
from support.recipes import TINY
from support.slurm import write_slurm

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
BIN = Path(sys.executable).parent
#: Pages that show commands to be run one after the other in an empty folder.
RUNNABLE = [page for page in PAGES if page.stem != "slurm" and fenced_steps(page.read_text())]

#: Commands that start ranks or use what these leave; and those that only show something, although they begin alike.
_STARTS_RANKS = re.compile(
    r"gnnloom (train|predict|report|run|calibrate|export \S+ (predictions|scores|embeddings))\b|mpirun"
)
_SHOWS = re.compile(r"gnnloom run .*--(list|show|new|plan|dry-run|emit)")
#: Commands of the project itself, which other checks run; here they only have to exist.
_MAKE = re.compile(r"make (\S+)$")
#: Added to a recipe's commands, so that they take seconds.
_AT_A_SMALL_SIZE = {"gnnloom generate big rmat": " --scale 10"}
_SMALLER = "".join(f" --set {setting}" for setting in (*TINY, "train.ranks=2"))


def _ids(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(DOCS)) for page in pages]


def _smaller(command: str) -> str:
    if make := _MAKE.match(command):
        return f"make --dry-run --directory {ROOT} {make[1]}"
    if command.startswith(("gnnloom run quick-start", "mpirun -n 4 gnnloom run quick-start")):
        # The last setting of a key counts.
        ranks = "4" if command.startswith("mpirun") else "2"
        return command + _SMALLER.replace("train.ranks=2", f"train.ranks={ranks}")
    return command + _AT_A_SMALL_SIZE.get(" ".join(command.split()[:4]), "")


def _skip_without_pyg(page: Path) -> None:
    if "torch_geometric" in page.read_text():
        pytest.importorskip("torch_geometric")


def _write(step: Step, folder: Path) -> None:
    """Write a file that a page shows; a block of TOML without a file's name has to be a recipe as well."""
    if step.language == "toml":
        assert tomllib.loads(step.text)
    if step.file:
        (folder / step.file).write_text(step.text)


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=_ids(RUNNABLE))
def test_commands_of_the_manual_that_start_no_ranks_work_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _skip_without_pyg(page)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNLOOM_CATALOG", "catalog")
    if "torch_geometric" in page.read_text():
        # Its import gives warnings, which this ignores.
        pytest.importorskip("torch_geometric.nn")
    for step in fenced_steps(page.read_text()):
        if step.is_file:
            _write(step, tmp_path)
        elif step.language == "python":
            exec(compile(step.text, str(page), "exec"), {"__name__": "__main__"})
        else:
            for command in step.commands:
                if not _STARTS_RANKS.match(command) or _SHOWS.match(command):
                    run_here(_smaller(command))


@pytest.mark.long
@pytest.mark.parametrize("page", RUNNABLE, ids=_ids(RUNNABLE))
def test_all_commands_of_the_manual_work_in_order(page: Path, tmp_path: Path) -> None:
    _skip_without_pyg(page)
    write_slurm(tmp_path / "stand-ins")
    environment = {**os.environ, "PATH": f"{tmp_path / 'stand-ins'}:{BIN}:{os.environ['PATH']}"}
    folder = tmp_path / "work"
    folder.mkdir()
    for step in fenced_steps(page.read_text()):
        if step.is_file:
            _write(step, folder)
            continue
        programs = [shlex.join([sys.executable, "-c", step.text])]
        for command in programs if step.language == "python" else map(_smaller, step.commands):
            done = subprocess.run(
                ["bash", "-c", command], cwd=folder, env=environment, check=False, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_blocks_that_tests_do_not_run_say_why() -> None:
    for page in PAGES:
        for reason in NOT_RUN.findall(page.read_text()):
            assert reason.endswith("."), f"{page}: {reason}"
        # Texts are output, formulas or trees. Sessions on a cluster are repeated by tests on a real Slurm.
        languages = set(re.findall(r"^```(\w+)$", page.read_text(), re.MULTILINE))
        assert languages <= {"bash", "python", "toml", "text", *(["console"] if page.stem == "slurm" else [])}, page


def test_the_home_page_leads_to_every_page() -> None:
    home = (DOCS / "index.md").read_text()
    others = {str(page.relative_to(DOCS)) for page in PAGES} - {"index.md"}
    assert others <= set(re.findall(r"\]\(([\w/-]+\.md)", home))


def test_pages_opened_as_files_have_search(tmp_path: Path) -> None:
    """`make docs` ends with an error where a page lacks the script that stands for a worker, or is not in the index."""
    settings = (ROOT / "mkdocs.yml").read_text()
    stand_in = re.search(r"^  polyfills: \[(.+)\]$", settings, re.MULTILINE)
    assert stand_in
    assert (DOCS / stand_in[1]).exists()
    assert "\n  - search\n" in settings
    assert "\n  - offline\n" in settings
    (tmp_path / "search").mkdir()
    (tmp_path / "javascripts").mkdir()
    (tmp_path / stand_in[1]).touch()
    index = '{"docs": [{"location": "plain.html"}, {"location": "index.html#part"}]}'
    (tmp_path / "search" / "search_index.js").write_text(f"var __index = {index}")
    for name in ("index.html", "missing.html"):
        (tmp_path / name).write_text(f'<script src="{stand_in[1]}"></script>')
    (tmp_path / "plain.html").write_text("")
    check = _module(DOCS / "generate" / "check_links.py")
    assert [line.partition(":")[0] for line in check.broken_links(tmp_path)] == ["plain.html"]
    assert [line.partition(":")[0] for line in check.unsearchable_pages(tmp_path)] == ["missing.html"]


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_messages_of_the_manual_occur_in_the_source() -> None:
    """A heading of the page on errors is a message; parts between ``...`` must occur as they are, in one file."""
    page = (DOCS / "how-to" / "troubleshooting.md").read_text()
    messages = re.findall(r"^### `(.+)`$", page, re.MULTILINE)
    assert len(messages) > 15
    # Long messages are written over several lines of source.
    sources = [_joined(path) for top in ("storage", "pipeline", "trainer", "workflows") for path in _sources(top)]
    for message in messages:
        parts = [part.strip() for part in message.split("...") if part.strip()]
        assert any(all(part in source for part in parts) for source in sources), message


def _sources(top: str) -> list[Path]:
    return [*(ROOT / top).rglob("*.py"), *(ROOT / top).rglob("*.sh")]


def _joined(path: Path) -> str:
    return re.sub(r'"\s*\n\s*f?"', "", path.read_text())


def test_files_and_targets_that_the_manual_names_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        text = page.read_text()
        for name in re.findall(r"`((?:tests|docs|storage|pipeline|trainer|workflows)/[\w/.-]+)`", text):
            assert (ROOT / name).exists(), f"{page}: {name}"
        for name, test in re.findall(r"`(tests/[\w/.-]+\.py)::(\w+)`", text):
            assert f"\ndef {test}(" in (ROOT / name).read_text(), f"{page}: {name}::{test}"
        for target in re.findall(r"`make ([\w-]+)`", text):
            assert f"\n{target}:" in makefile, f"{page}: make {target}"


def test_the_manual_says_which_tests_are_long() -> None:
    pages = [(DOCS / "explanation" / f"{name}.md").read_text() for name in ("guarantees", "comparison", "same-numbers")]
    for name, test, mark in re.findall(r"`(tests/[\w/.-]+\.py)::(\w+)`( \(long\))?", "".join(pages)):
        text = (ROOT / name).read_text()
        decorators = text.partition(f"\ndef {test}(")[0].rpartition("\n\n")[2]
        # Some of a test's parameters may be long.
        is_long = "@pytest.mark.long" in decorators or bool(re.search(r"^pytestmark = .*long", text, re.MULTILINE))
        assert is_long == bool(mark), f"{name}::{test}"


def test_every_statement_of_the_comparison_names_what_shows_it() -> None:
    page = (DOCS / "explanation" / "comparison.md").read_text()
    compared, shown = page.split("\n## What shows it\n")
    statements = [name for name, _ in _rows(compared) if name]
    assert len(statements) > 10
    assert [name for name, _ in _rows(shown) if name != "statement"] == statements
    for name, cells in _rows(shown)[1:]:
        assert re.search(r"`tests/[\w/.-]+::\w+`", cells[0]), name


def test_the_comparison_and_the_guide_list_what_there_is() -> None:
    rows = dict(_rows((DOCS / "explanation" / "comparison.md").read_text().partition("\n## ")[0]))
    for statement, room in (("models", "models"), ("decoders of pairs", "links/decoders")):
        assert _described(room) <= set(re.findall(r"[\w-]+", rows[statement][0])), statement
    guide = (DOCS / "how-to" / "training.md").read_text()
    tasks = guide.partition("\n## Choose what to predict\n")[2].partition("\n## ")[0]
    assert {name.strip("`") for name, _ in _rows(tasks)[1:]} == _described("tasks")


def _described(room: str) -> set[str]:
    """Names of the descriptors of a room; a registry may have the ones of packages that other tests install, too."""
    texts = [file.read_text() for file in (ROOT / "trainer" / room).glob("*.py")]
    found = {
        match[1] for text in texts if (match := re.search(r'^[A-Z]+ = \w+\(\s*name="([\w-]+)"', text, re.MULTILINE))
    }
    assert len(found) > 3
    return found


def _rows(text: str) -> list[tuple[str, list[str]]]:
    """The first cell and the other cells of each row of the tables of a text, without the lines below headings."""
    lines = [re.split(r" *\| *", line)[1:-1] for line in text.splitlines() if line.startswith("|")]
    return [(cells[0], cells[1:]) for cells in lines if not cells[0].startswith("---")]


def test_the_reference_names_every_function_and_the_commands_without_one() -> None:
    page = (DOCS / "reference" / "python.md").read_text()
    table, _, rest = page.partition("\n`Catalog`, ")
    listed = {name for functions, _ in _rows(table)[1:] for name in re.findall(r"`(\w+)`", functions)}
    assert listed == {name for name in gnnloom.__all__ if name[0].islower()}
    commands = set(cli.list_commands(click.Context(cli))) - {"catalog", "report", "links"}
    without = re.search(r"The commands (.*) have no function", rest)
    assert without
    assert commands - listed == set(re.findall(r"`(\w+)`", without[1]))


def test_functions_have_the_options_of_their_commands() -> None:
    """All but options for the terminal and arguments, which are positional in Python."""
    page = (DOCS / "reference" / "python.md").read_text()
    keywords = ast.parse((ROOT / "workflows" / "api" / "options" / "option_types.pyi").read_text())
    fields = {
        each.name: {
            part.target.id
            for part in each.body
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
        }
        for each in keywords.body
        if isinstance(each, ast.ClassDef)
    }
    for name in re.findall(r"`(\w+)`", _rows(page)[1][0]):
        command = cli.get_command(click.Context(cli), name)
        assert command
        given = {each.name for each in command.params if isinstance(each, click.Option) and not each.hidden}
        taken = set(inspect.signature(getattr(gnnloom, name)).parameters) | fields["ClusterKeywords"]
        taken |= fields.get(f"{name.title()}Keywords", set()) | (fields["IngestKeywords"] if name == "look" else set())
        assert given - taken <= _FOR_THE_TERMINAL.get(name, set()) | {"as_json", "plan", "help_all"}, name


#: Options that print something else, or that Python has by another name.
_FOR_THE_TERMINAL = {
    "ingest": {"format_name", "quiet"},
    "features": {"quiet"},
    "plan": {"top"},
    "predict": {"quiet"},
    "generate": {"ordered"},
    "look": {"format_name"},
    "partition": {"compare"},
    "run": {"listed", "show", "new", "dry_run", "emit", "out"},
    "simulate": {"table"},
}


def test_only_the_commands_that_the_reference_names_have_no_json() -> None:
    without = {name for name, command in _commands(cli) if not any(each.name == "as_json" for each in command.params)}
    named = re.search(
        r"and nothing else; (.*) do not have the option", (DOCS / "reference" / "cli.md").read_text(), re.DOTALL
    )
    assert named
    assert without == set(re.findall(r"`(\w+)`", named[1]))


def _commands(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command
        yield from _commands(command) if isinstance(command, click.Group) else [(name, command)]


def test_every_guarantee_names_what_shows_it() -> None:
    page = (DOCS / "explanation" / "guarantees.md").read_text()
    for section in page.split("\n## ")[1:]:
        assert re.search(r"`tests/[\w/.-]+(?:::\w+)?`", section), section.splitlines()[0]
