"""Any separator, and columns by their numbers or names, in edges, pairs and vertex tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnloom
from gnnloom.storage import Dataset
from gnnloom.storage.errors import InputError
from support.covering import few_of

#: Separators that are recognized, and those that an option gives.
RECOGNIZED = [",", ";", "\t", " ", "|", " | ", "\t|\t", "::", ":"]
GIVEN = ["||", "->", "~", "#", "tab", "; "]
EDGES = [(1, 2), (2, 3), (3, 1), (3, 5)]


def ingest(folder: Path, lines: list[list[Any]], separator: str, name: str, **options: Any) -> Dataset:
    between = "\t" if separator == "tab" else separator
    file = folder / f"{name}.txt"
    file.write_text("".join(between.join(map(str, line)) + "\n" for line in lines))
    return gnnloom.ingest(name, file, catalog=folder / "catalog", workers=0, self_loops="keep", **options)


def edges_of(dataset: Dataset) -> list[tuple[int, int]]:
    target, source = dataset.graph().to_scipy().nonzero()
    return sorted(zip(source.tolist(), target.tolist(), strict=True))


@pytest.mark.parametrize(("separator", "columns"), few_of([*RECOGNIZED, *GIVEN], [None, "2,1", "5,3"], together=1))
def test_edges_are_the_same_between_any_separators(tmp_path: Path, separator: str, columns: str | None) -> None:
    options: dict[str, Any] = {"delimiter": separator.strip(" ")} if separator in GIVEN else {}
    if columns is not None:
        options |= {"columns": columns, "header": True}
    # With a header, whose fields have numbers as well.
    wide: list[list[Any]] = [
        ["src", "dst", "b", "weight", "a"],
        *([target, source, target, 1.5, source] for source, target in EDGES),
    ]
    lines: list[list[Any]] = wide if columns else [list(edge) for edge in EDGES]
    found = ingest(tmp_path, lines, separator, "web", **options)
    assert edges_of(found) == sorted(EDGES)


@pytest.mark.parametrize("separator", [*RECOGNIZED, *GIVEN])
def test_names_are_the_same_between_any_separators(tmp_path: Path, separator: str) -> None:
    options: dict[str, Any] = {"delimiter": separator.strip(" ")} if separator in GIVEN else {}
    lines = [[f"n{source}", f"n{target}"] for source, target in EDGES]
    found = ingest(tmp_path, lines, separator, "web", ids="names", **options).graph()
    assert [found.original_name(k, k + 1)[0] for k in range(found.num_vertices)] == ["n1", "n2", "n3", "n5"]


@pytest.mark.parametrize("separator", [*RECOGNIZED, *GIVEN])
def test_pairs_are_the_same_between_any_separators(tmp_path: Path, separator: str) -> None:
    between = "\t" if separator == "tab" else separator
    options: dict[str, Any] = {"delimiter": separator.strip(" ")} if separator in GIVEN else {}
    dataset = ingest(tmp_path, [[k, k + 1] for k in range(30)], ",", "web")
    files: dict[str, Any] = {}
    for split, pairs in {"valid": [(3, 4), (8, 9)], "test": [(5, 6)]}.items():
        files[split] = tmp_path / f"{split}.txt"
        lines = [between.join(map(str, (7, target, source))) for source, target in pairs]
        files[split].write_text("\n".join(lines))
    links = gnnloom.read_links(dataset, **files, columns="3,2", header=False, workers=0, **options)
    assert links.pair("valid").tolist() == [[3, 4], [8, 9]]
    assert links.pair("test").tolist() == [[5, 6]]


@pytest.mark.parametrize("separator", RECOGNIZED)
def test_vertex_tables_are_the_same_between_any_separators(tmp_path: Path, separator: str) -> None:
    dataset = ingest(tmp_path, [list(edge) for edge in EDGES], ",", "web", ids="compact")
    (tmp_path / "x.txt").write_text("".join(f"{k}{separator}{k / 2}{separator}{k}\n" for k in (5, 3, 2, 1)))
    found = gnnloom.features(dataset, feature=tmp_path / "x.txt", by_id=True, workers=0)
    np.testing.assert_array_equal(found.vertices().feature(), [[k / 2, k] for k in (1, 2, 3, 5)])


@pytest.mark.parametrize(("separator", "header"), few_of(RECOGNIZED, [False, True], together=1))
def test_vertex_tables_of_names_are_the_same_between_any_separators(
    tmp_path: Path, separator: str, header: bool
) -> None:
    dataset = ingest(tmp_path, [["ann", "bo"], ["bo", "cy"], ["ann", "cy"]], separator, "web", ids="names")
    lines = [["name", "age", "job"]] * header + [["cy", 31, "miner"], ["ann", 44, "smith"], ["bo", 27, "miner"]]
    (tmp_path / "t.txt").write_text("".join(separator.join(map(str, line)) + "\n" for line in lines))
    feature, label = ("age", "job") if header else ("2", "3")
    how: dict[str, Any] = {"feature": f"{tmp_path}/t.txt:{feature}", "label": f"{tmp_path}/t.txt:{label}"}
    found = gnnloom.features(dataset, **how, by_id=True, workers=0).vertices()
    assert found.feature().tolist() == [[44], [27], [31]]
    assert found.label().tolist() == [1, 0, 0]
    text = "".join(f"{line[0]}{separator}{line[1]}\n" for line in lines)
    (tmp_path / "one.txt").write_text(text)
    other = gnnloom.features(dataset, feature=tmp_path / "one.txt", by_id=True, workers=0, add=True)
    assert len(other.artifacts("vertices")) == 2


@pytest.mark.parametrize("lines", ["GO:1\nHP:1\nGO:2\n", "http://x\nhttps://y\nhttp://z\n", "a:b\nc\nd:e\n"])
def test_colons_within_names_separate_nothing(tmp_path: Path, lines: str) -> None:
    dataset = ingest(tmp_path, [[0, 1], [1, 2]], ",", "web")
    (tmp_path / "y.txt").write_text(lines)
    found = gnnloom.features(dataset, label=tmp_path / "y.txt", header=False, workers=0).vertices()
    assert found.num_classes == len(set(lines.split()))


@pytest.mark.parametrize(
    ("line", "options", "reason"),
    [
        ("1,2", {"delimiter": "||"}, "a comma or a blank within an id"),
        ("1,5|2", {"delimiter": "|", "extra_columns": True}, "a comma or a blank within an id"),
        ("1 5|2", {"columns": "1,2", "header": False, "delimiter": "|"}, "a comma or a blank within an id"),
        ("7|1\t5|2", {"columns": "2,3", "header": False, "delimiter": "|"}, "a tab within an id"),
        ("a\tb|c|d", {"columns": "1,2", "header": False, "delimiter": "|", "ids": "names"}, "a tab within an id"),
    ],
)
def test_what_is_not_the_separator_separates_nothing(
    tmp_path: Path, line: str, options: dict[str, Any], reason: str
) -> None:
    (tmp_path / "web.txt").write_text(f"{line}\n")
    with pytest.raises(InputError, match=f"line 1.*{reason}"):
        gnnloom.ingest("web", tmp_path / "web.txt", catalog=tmp_path / "catalog", workers=0, **options)


def test_names_may_have_what_separates_nothing(tmp_path: Path) -> None:
    how = {"delimiter": "|", "header": False}
    found = ingest(tmp_path, [["Smith, John", '"a|b"'], ["x y", "Smith, John"]], "|", "web", ids="names", **how).graph()
    assert [found.original_name(k, k + 1)[0] for k in range(3)] == ["Smith, John", "a|b", "x y"]
