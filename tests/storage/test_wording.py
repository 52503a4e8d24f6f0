"""A count is written with its noun as people write it, and a name that is nearly right is recognized."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gnnloom.storage.wording import PLURALS, counted, did_you_mean, reason_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "vertex", "1 vertex"),
        (0, "vertex", "0 vertices"),
        (2000, "training pair", "2,000 training pairs"),
        (1, "row block", "1 row block"),
        (3, "batch", "3 batches"),
        (2, "entry", "2 entries"),
        (-1, "pass", "-1 passes"),
    ],
)
def test_a_noun_is_in_the_singular_after_1_only(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


def test_no_noun_that_messages_use_gets_a_wrong_plural() -> None:
    """English nouns that end in these letters do not take an s alone."""
    nouns = {
        match[1].split()[-1]
        for folder in ("storage", "pipeline", "trainer", "workflows")
        for path in (ROOT / folder).rglob("*.py")
        for match in re.finditer(r"counted\([^\n]*?, ['\"]([a-z ]+)['\"]\)", path.read_text(encoding="utf-8"))
    }
    assert {"vertex", "rank", "row"} <= nouns
    irregular = {noun for noun in nouns if re.search(r"(s|x|z|ch|sh|[^aeiou]y)$", noun)}
    assert irregular - PLURALS.keys() == {"epoch"}


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("hiden", ["layers", "hidden"], "did you mean hidden?"),
        ("GraphSage", ["GraphSAGE", "GraphSaga"], "did you mean GraphSAGE?"),
        ("x", ["layers", "hidden"], "there are layers, hidden"),
    ],
)
def test_the_most_similar_name_is_named_or_else_all_of_them(name: str, known: list[str], said: str) -> None:
    assert did_you_mean(name, known, "there are") == said
    assert did_you_mean("x", known) == ""


def test_the_reason_of_an_error_is_one_line_whatever_it_quotes() -> None:
    assert reason_of(ValueError("dtype <\n8\x1b[31m")) == "ValueError: dtype <\\n8\\x1b[31m"
