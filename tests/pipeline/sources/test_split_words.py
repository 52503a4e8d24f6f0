"""Splits in the words and layouts that people use mean the same in every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnloom.pipeline.sources.format import open_vertices
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import split_part
from gnnloom.workflows.api.arrays import stored_vertices
from support.covering import few_of

WORDS = ["train", "Training", "val", "valid", "VALIDATION", "dev", "test", "testing", "none", "unlabeled", "2"]
CODES = [1, 1, 2, 2, 2, 2, 3, 3, 0, 0, 2]


def codes(location: str) -> list[int]:
    source = open_vertices("files", (), {"split": location})
    found: list[int] = np.concatenate(list(source.read_rows("split", 0, source.num_vertices()))).tolist()
    return found


@pytest.mark.parametrize("kind", ["csv", "npy", "bytes", "npz", "parquet", "dictionary", "objects"])
def test_words_mean_the_same_in_every_format(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"s.{ {'dictionary': 'parquet', 'bytes': 'npy'}.get(kind, kind) }"
    words: Any = [*WORDS, "train"]
    if kind == "csv":
        path.write_text("\n".join(words) + "\n")
    elif kind == "npy":
        np.save(path, np.array(words))
    elif kind == "bytes":
        np.save(path, np.array(words, "S"))
    elif kind == "npz":
        np.savez_compressed(path, split=np.array(words))
    elif kind == "objects":
        with stored_vertices({"split": np.array([*WORDS, None, float("nan")], object)}) as files:
            assert codes(files["split"]) == [*CODES, 0, 0]
        return
    else:
        column = pa.array(words)
        pq.write_table(pa.table({"split": column.dictionary_encode() if kind == "dictionary" else column}), path)
    assert codes(str(path)) == [*CODES, 1]


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_other_words_are_named_with_their_row(tmp_path: Path, kind: str) -> None:
    path, words = tmp_path / f"s.{kind}", ["train", "trian", "test"]
    if kind == "npy":
        np.save(path, np.array(words))
    else:
        pq.write_table(pa.table({"split": words}), path)
    with pytest.raises(InputError, match=r"row 1:"):
        codes(str(path))


@pytest.mark.parametrize(
    ("names", "are_masks"),
    few_of(
        [
            ("train", "valid", "test"),
            ("train_mask", "val_mask", "test_mask"),
            ("train_idx", "validation_idx", "test_idx"),
        ],
        [False, True],
        together=1,
    ),
)
def test_masks_and_index_arrays_give_the_same_split(tmp_path: Path, names: tuple[str, ...], are_masks: bool) -> None:
    expected = [1, 1, 2, 0, 3, 3]
    parts = {name: np.array(expected) == code for code, name in enumerate(names, 1)}
    given: Any = parts if are_masks else {name: np.flatnonzero(mask) for name, mask in parts.items()}
    np.savez(tmp_path / "s.npz", **given)
    np.save(tmp_path / "y.npy", np.arange(6))
    label = str(tmp_path / "y.npy")
    with stored_vertices({"split": given}) as files:
        for location in (str(tmp_path / "s.npz"), files["split"]):
            source = open_vertices("files", (), {"split": location, "label": label})
            assert np.concatenate(list(source.read_rows("split", 0, 6))).tolist() == expected
    if are_masks:
        assert codes(str(tmp_path / "s.npz")) == expected
        np.save(tmp_path / "y.npy", np.arange(7))
        with pytest.raises(InputError, match="6 rows"):
            open_vertices("files", (), {"split": str(tmp_path / "s.npz"), "label": label})


def test_mappings_that_are_no_split_are_refused(tmp_path: Path) -> None:
    wrong: list[tuple[Any, str]] = [
        ({"train": [0], "test": [1]}, "expected arrays train, valid and test, found train, test"),
        ({"train": [0], "val": [1], "valid": [2], "test": [3]}, "found train, val, valid, test"),
        ({"train": [0], "val": [1], 3: [2]}, "found train, val, 3"),
    ]
    for given, named in wrong:
        with pytest.raises(InputError, match=named), stored_vertices({"split": given}):
            pass
    np.savez(tmp_path / "s.npz", train=[0], val=[1], valid=[2], test=[3])
    with pytest.raises(InputError, match="val and valid are the same part of a split"):
        codes(str(tmp_path / "s.npz"))


@pytest.mark.parametrize(
    ("name", "part"), [("Val_Mask", "valid"), ("dev", "valid"), ("mask", None), ("none", None), ("train_loss", None)]
)
def test_names_of_parts(name: str, part: str | None) -> None:
    assert split_part(name) == part
