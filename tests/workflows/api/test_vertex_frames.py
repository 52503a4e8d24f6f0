"""Frames give features, labels and splits as tables in files do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gnnloom
from gnnloom.storage.errors import InputError
from gnnloom.workflows.recipe.read import section_kinds
from gnnloom.workflows.recipe.sources import SourceSection

FRAME = pd.DataFrame({
    "id": [2, 0, 1], "age": [3.0, None, 2], "sector": ["b", "a", None], "emb": [[1.0, 2], [3, 4], [5, 6]],
    "fold": ["train", "val", "test"], "tags": [[0, 1], [1, 1], [0, 0]],
})  # fmt: skip


def of_polars(frame: pd.DataFrame) -> Any:
    polars: Any = pytest.importorskip("polars")
    return polars.from_arrow(pa.table(frame))


LIBRARIES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "arrow": pa.table,
    "polars": of_polars,
    "lazy": lambda frame: of_polars(frame).lazy(),
}


@pytest.fixture(autouse=True)
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNLOOM_CATALOG", str(tmp_path / "catalog"))
    gnnloom.ingest("g", np.array([[0, 1], [1, 2], [2, 0], [0, 2]]), workers=0)


def stored(**options: Any) -> Any:
    return gnnloom.features("g", workers=0, **options).vertices()


@pytest.mark.parametrize("library", LIBRARIES)
def test_columns_of_a_frame_of_any_library_are_read(library: str) -> None:
    frame = LIBRARIES[library](FRAME)
    vertices = stored(
        feature=(frame, ["age", "emb"]), label=(frame, "sector"), split=(frame, "fold"), by_id=True, missing="mean"
    )
    assert vertices.feature().tolist() == [[2.5, 3, 4], [2, 5, 6], [3, 1, 2]]
    assert vertices.label().tolist() == [0, -1, 1]
    assert vertices.split().tolist() == [2, 3, 1]
    assert vertices.artifact.facts["class_names"] == ["a", "b"]


def test_several_labels_come_from_a_column_of_lists() -> None:
    assert stored(label=(FRAME, ["tags"]), ids_file=(FRAME, "id")).multilabel().tolist() == [[1, 1], [0, 0], [0, 1]]


def test_an_index_is_the_ids_or_a_question() -> None:
    indexed = FRAME.set_index("id")[["age"]].fillna(0)
    assert stored(feature=indexed, by_id=True).feature().tolist() == [[0], [2], [3]]
    with pytest.raises(InputError, match=r"feature:.*`by_id=True`"):
        stored(feature=indexed)


def test_a_column_of_ids_that_is_not_read_is_a_question() -> None:
    with pytest.raises(InputError, match=r"feature:.*`by_id=True`.*`by_id=False`"):
        stored(feature=(FRAME, ["emb"]))
    assert stored(feature=(FRAME, ["emb"]), by_id=False).feature().tolist() == [[1, 2], [3, 4], [5, 6]]


def test_an_unknown_column_is_answered_with_the_columns() -> None:
    with pytest.raises(InputError, match="feature:"):
        stored(feature=(FRAME, ["ages"]), by_id=True)


def test_masks_of_several_splits_need_an_index() -> None:
    eye = np.eye(3, dtype=bool)
    masks = {"train_mask": eye, "val_mask": eye[:, [2, 0, 1]], "test_mask": np.zeros((3, 3), bool)}
    with pytest.raises(InputError, match=r"3 splits; choose one with split_index"):
        stored(split=masks)
    assert stored(split=masks, split_index=1).split().tolist() == [2, 1, 0]


def test_a_file_and_its_columns_are_named_as_a_tuple(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "a,b.csv", index=False)
    vertices = stored(
        feature=(tmp_path / "a,b.csv", ["age"]), label=(tmp_path / "a,b.csv", "sector"), by_id=True, missing="0"
    )
    assert vertices.feature().tolist() == [[0], [2], [3]]


def test_names_in_a_series_are_classes() -> None:
    assert stored(label=pd.Series(["x", None, "y"])).label().tolist() == [0, -1, 1]


def test_masks_in_a_frame_are_a_split() -> None:
    masks = pd.DataFrame(
        {"train_mask": [True, False, False], "val_mask": [False, True, False], "test_mask": [False] * 3}
    )
    assert stored(split=masks).split().tolist() == [1, 2, 0]
    with pytest.raises(InputError, match=r"split, column val_mask, row 0:"):
        stored(split=masks.assign(val_mask=True), add=True)


def test_a_mapping_of_columns_is_refused_with_what_to_pass() -> None:
    with pytest.raises(InputError, match=r"feature:"):
        stored(feature={"a": [1, 2, 3]})


def test_a_recipe_reads_columns_of_a_table(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    keys: dict[str, Any] = {
        "format": "keyed",
        "feature": f"{tmp_path}/t.csv:age",
        "label": f"{tmp_path}/t.csv:sector",
        "missing": "mean",
    }
    section = section_kinds()["vertices"](**keys).anywhere()
    source = section.open(SourceSection(path=("edges.txt",)), gnnloom.Catalog()["g"].graph())
    assert source is not None
    assert source.arrays == ("feature", "label")
    assert section.identity(SourceSection(path=("edges.txt",))) == source.identity()
