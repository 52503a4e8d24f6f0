"""One option reads, checks and writes its value in the same way for commands, recipes and Python."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Group, Option, check_options, option, options_of

FANOUT = Option("fanout", tuple[int, ...], "Neighbors.", (), least=1, also=(-1,))
GRID = Option("grid", tuple[int, ...], "Grid.", separator="x", lengths=(2, 3))


@pytest.mark.parametrize(
    ("given", "text", "value"),
    [
        (Option("n", int), "3", 3),
        (Option("n", float), "0.5", 0.5),
        (Option("n", bool), "true", True),
        (Option("n", Path), "a/b", Path("a/b")),
        (Option("memory", int, is_size=True), "1.5G", 3 << 29),
        (Option("batches", int, words={"auto": -1}), "auto", -1),
        (Option("log", tuple[str, ...]), "a, b", ("a", "b")),
        (FANOUT, "15,-1", (15, -1)),
        (FANOUT, "", ()),
        (GRID, "2x1x3", (2, 1, 3)),
    ],
)
def test_a_text_is_read_as_the_type_of_the_option(given: Option, text: str, value: Any) -> None:
    assert given.parse(text) == value


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (Option("memory", int, is_size=True), 256 << 20),
        (Option("memory", int, is_size=True), (1 << 30) + 1),
        (Option("memory", int, is_size=True), 0),
        (Option("batches", int, words={"auto": -1}), -1),
        (Option("flag", bool), False),
        (FANOUT, (10, -1)),
        (GRID, (4, 4)),
    ],
)
def test_what_is_written_is_read_again(given: Option, value: Any) -> None:
    assert given.parse(given.shown(value)) == value


@pytest.mark.parametrize(
    ("given", "wrong", "said"),
    [
        (Option("n", int, least=1), 0, "n 0: expected at least 1$"),
        (Option("n", int, least=1, most=8), 9, "n 9: expected at most 8$"),
        (Option("n", int, least=0), 1 << 63, r"expected at most 2\^63 - 1"),
        (Option("n", float, above=0, most=1), 0.0, "expected more than 0"),
        (Option("n", float, above=0), math.nan, "expected more than 0"),
        (Option("n", float, below=math.inf), math.inf, "expected a number from 0 upwards"),
        (FANOUT, (5, 0), "fanout 0: expected at least 1, or -1"),
        (FANOUT, [5, -2], "fanout -2: expected at least 1, or -1"),
        (Option("way", str, default="a", choices=("a", "b")), "c", "way 'c': expected one of a, b$"),
        (Option("n", int), "many", "n many: expected an integer"),
        (replace(FANOUT, example="15,10"), "5,5", "fanout 5,5: expected integers separated by commas, such as 15,10$"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_expected(given: Option, wrong: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        given.check(wrong)


@pytest.mark.parametrize(
    ("given", "text", "said"),
    [
        (GRID, "4", "2 to 3 sizes with x between them, such as 4x4x4"),
        (GRID, "4x0", "sizes with x between them"),
        (Option("memory", int, is_size=True), "2X", "expected a size such as 512M or 1G"),
        (Option("batches", int, words={"auto": -1}), "some", "expected an integer, or auto"),
        (FANOUT, "a,b", "integers separated by commas"),
    ],
)
def test_a_text_of_another_type_is_refused_with_what_is_expected(given: Option, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        given.parse(text)


@dataclass(frozen=True)
class Settings:
    parts: int = option(text="Parts.", kind=int, least=1, group=Group.PARTITION)
    share: float = option(0.5, "Share.", above=0)
    inner: int = 3


def test_the_fields_of_a_dataclass_are_its_options() -> None:
    assert list(options_of(Settings)) == ["parts", "share"]
    parts = options_of(Settings)["parts"]
    assert (parts.name, parts.kind, parts.required, parts.help) == ("parts", int, True, "Parts.")
    check_options(Settings(4))
    with pytest.raises(InputError, match="share 0: expected more than 0"):
        check_options(replace(Settings(4), share=0))


def test_there_is_one_class_of_options() -> None:
    root = Path(__file__).resolve().parents[2]
    folders = [root / name for name in ("storage", "pipeline", "trainer", "workflows")]
    found = [path for folder in folders for path in folder.rglob("*.py") if "\nclass Option:" in path.read_text()]
    assert found == [root / "storage" / "option.py"]
