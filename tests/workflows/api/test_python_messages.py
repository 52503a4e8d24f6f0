"""Errors of the Python API name arguments and keywords, not temporary files and flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

import gnnloom
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option
from gnnloom.workflows.api.options.python_messages import python_text

OPTIONS = {
    "ids": Option("ids", str, choices=("keep", "compact", "names")),
    "merge": Option("merge", str, choices=("sum", "max")),
    "times": Option("times", bool),
    "header": Option("header", bool, deniable=True),
    "split_index": Option("split_index", int),
    "decimal": Option("decimal", str),
    "add": Option("add", bool),
}


@pytest.fixture(autouse=True)
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNLOOM_CATALOG", str(tmp_path / "catalog"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("add `--ids names`", 'add `ids="names"`'),
        ("with `--times --add`, and", "with `times=True, add=True`, and"),
        ("give --merge as well", "give merge as well"),
        ("--merge max for the last", 'merge="max" for the last'),
        ("(--times reads them)", "(times=True reads them)"),
        ("`--no-header` or --header", "`header=False` or header=True"),
        ("`--decimal ,` reads it", '`decimal=","` reads it'),
        ("one with --split-index, from 0 to 9", "one with split_index, from 0 to 9"),
        ("--split-index 3: expected", "split_index=3: expected"),
        ("`--graph KEY`", "`graph=KEY`"),
        ("with `gnnloom partition web --parts 3`", "with `gnnloom partition web --parts 3`"),
        ("a--b, 'x --', well-known", "a--b, 'x --', well-known"),
    ],
)
def test_flags_become_keywords(text: str, expected: str) -> None:
    assert python_text(text, OPTIONS) == expected


def data(**more: Any) -> Any:
    kind = pytest.importorskip("torch_geometric.data").Data
    return kind(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3, **more)


@pytest.mark.parametrize(
    ("make", "options", "expected"),
    [
        (lambda: nx.grid_2d_graph(2, 2), {}, 'source, .*add `ids="names"`'),
        (lambda: np.array([[0, 1], [1, -2]]), {}, r"^source, edge 1: .*found -2"),
        (lambda: [(0, 1), (1, 2), (2, 0)], {"weights": True}, r"^source: .*no weights"),
        (lambda: data(x=torch.tensor([[1.0], [float("nan")], [2.0]])), {}, r"^source, x, row 1"),
        (lambda: data(train_mask=torch.ones(3, 10, dtype=torch.bool)), {}, r"^source, train_mask: .*with split_index,"),
        (data, {"split_index": 0}, "split_index: source has no vertex data"),
        (data, {"weights": True, "times": True}, r"`times=True, add=True`"),
        (lambda: [(0, 1)], {"undirect": True}, "ingest: no option undirect; did you mean undirected"),
        (lambda: [(0, 1)], {"weight": True}, "ingest: no option weight; did you mean weights"),
        (lambda: [(0, 1)], {"header": True}, "has no option header"),
        (lambda: [(0, 1)], {"label": [0, 1]}, "no option label; gnnloom.features"),
    ],
)
def test_errors_of_ingest_name_the_argument(make: Any, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected) as raised:
        gnnloom.ingest("web", make(), workers=0, **options)
    assert "/tmp" not in str(raised.value)
    assert "--" not in str(raised.value).replace("`gnnloom", "") or "`gnnloom" in str(raised.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"feature": np.full((3, 2), np.nan)}, r"^feature, row 0"),
        ({"label": np.array([0, 0.5, 1])}, r"^label, row 1"),
        ({"split": {"train": [0], "val": [1], "test": [7]}}, r"^split, array test, entry 0"),
        ({"split": ["train", "trian", "test"]}, r"^split, row 1"),
        ({"labels": np.arange(3)}, "features: no option labels; did you mean label"),
    ],
)
def test_errors_of_features_name_the_array(given: dict[str, Any], expected: str) -> None:
    web = gnnloom.ingest("web", [(0, 1), (1, 2)], workers=0)
    with pytest.raises(InputError, match=expected):
        gnnloom.features(web, workers=0, **{"feature": np.ones((3, 1)), **given})


def test_look_names_the_argument_and_its_keywords(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^source: .*no weights"):
        gnnloom.look([(0, 1), (1, 2), (2, 0)], weights=True)
    (tmp_path / "a.txt").write_text("a,b\nc,d\n")
    with pytest.raises(InputError, match=r"a\.txt") as raised:
        gnnloom.ingest("names", tmp_path / "a.txt", workers=0)
    assert "--" not in str(raised.value)
