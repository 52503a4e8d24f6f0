"""A command that a message shows is safe to paste: no name or path in it is more than a word to a shell."""

from __future__ import annotations

import ast
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import gnnloom.storage
from gnnloom.storage import Catalog
from gnnloom.storage.errors import NotFoundError
from gnnloom.storage.wording import printable, shell_command
from gnnloom.trainer.config.train_config import TrainConfig, command_line
from gnnloom.workflows.api.look import look
from gnnloom.workflows.api.options.python_messages import python_text
from support.small_catalogs import store_small_dataset

#: Words that a shell would take apart, run, expand, or show as something else.
HOSTILE = (
    "two words", "it's", 'a "b"', ";touch x", "$(touch x)", "`touch x`", "a&b|c>d", "*", "~", "#", "!!", "", "-rf",
    "\ttab", "line\nfeed", "back\\slash", "\x1b[31m", "\u202egnp.exe", "$HOME", "{a,b}", "数 é", "\udcff", "\r", "\x7f",
)  # fmt: skip

_ROOMS = [Path(gnnloom.storage.__file__).parents[1] / room for room in ("storage", "pipeline", "trainer", "workflows")]
#: What messages put into commands besides `shell_command`: names of datasets and runs, which `check_name` restricts to
#: letters, digits and ``._-``; numbers; gnnloom's own options and packages.
_PLAIN = {
    "METHODS[name].package", "STORED[0]", "config.mode.name", "dataset", "dataset.name", "kind", "logger.package",
    "name", "logger.install", "method.install", "num_ranks", "option", "package", "permutation", "request.ranks",
    "run.path.parents[1].name", "self.name", "max(steps, default=3)", "step.arguments", "values['size']", "size",
    # Python code.
    "call",
    "', '.join((keyword(each[0], each[1] if len(each) > 1 else None) for each in flags))",
}  # fmt: skip


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_shell_reads_a_shown_command_as_the_words_that_it_was_made_from(tmp_path: Path) -> None:
    shown = shell_command("printf", "%s\\0", *HOSTILE)
    assert printable(shown) == shown
    done = subprocess.run(["bash", "-c", shown], cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout == b"".join(word.encode(errors="surrogateescape") + b"\0" for word in HOSTILE)
    assert list(tmp_path.iterdir()) == []


def _inserted(text: ast.JoinedStr) -> list[str]:
    """The expressions that a formatted string puts into the commands between its backquotes."""
    found, inside = [], False
    for part in text.values:
        if isinstance(part, ast.Constant):
            inside ^= str(part.value).count("`") % 2 == 1
        elif isinstance(part, ast.FormattedValue) and inside:
            found.append(ast.unparse(part.value))
    return found


@pytest.mark.slow
def test_every_message_quotes_the_words_of_its_commands() -> None:
    found = [
        (f"{path}:{node.lineno}", each)
        for room in _ROOMS
        for path in room.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.JoinedStr)
        for each in _inserted(node)
    ]
    unquoted = [(where, each) for where, each in found if not each.startswith("shell_command(") and each not in _PLAIN]
    assert unquoted == []


@pytest.mark.parametrize("name", [word for word in HOSTILE if word and "\udcff" not in word])
def test_look_shows_a_command_that_stores_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path(f"{name}.csv")
    file.write_text("0,1\n1,2\n")
    command = look(f"./{file}").command
    if "$'" not in command:
        assert f"./{file}" in shlex.split(command)
    assert printable(command) == command


def test_remedies_quote_what_users_and_strangers_named(tmp_path: Path) -> None:
    dataset = store_small_dataset(Catalog(tmp_path / "my catalog;$(x)"))
    config = TrainConfig.of(catalog=str(dataset.path.parent), dataset="web", loss="mine:a;$(touch x)")
    words = shlex.split(command_line(config))
    assert str(dataset.path.parent) in words
    assert "mine:a;$(touch x)" in words
    with pytest.raises(NotFoundError) as missing:
        dataset.find("partition", parts="2; touch x")
    assert "--parts '2; touch x'" in str(missing.value)
    # As Python code it is not quoted twice.
    assert python_text("pass `--comment '#'` or `--comment none`", {}) == 'pass `comment="#"` or `comment="none"`'
