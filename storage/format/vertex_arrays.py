"""The registry of arrays per vertex: adding an array that files give is adding an entry to ``VERTEX_ARRAYS``.

From an entry follow the option that names a file, the conversion and check of what sources of any format hold, the
stored vertex data, the copies in row shards and grid shards, the limits that readers and ``catalog verify`` check, and
the exports.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: Values of the ``split`` array.
SPLIT: Final[Mapping[str, int]] = MappingProxyType({"none": 0, "train": 1, "valid": 2, "test": 3})
#: Words for the parts of a split in files and names of arrays: at most 12 lower-case letters each.
SPLIT_WORDS: Final[Mapping[str, int]] = MappingProxyType(
    {
        **SPLIT,
        "val": SPLIT["valid"],
        "validation": SPLIT["valid"],
        "dev": SPLIT["valid"],
        "training": SPLIT["train"],
        "testing": SPLIT["test"],
        "unlabeled": SPLIT["none"],
    }
)
#: Endings of the names of arrays with the vertices of a part of a split.
_SPLIT_ENDINGS: Final = ("", "_mask", "_masks", "_idx", "_index", "_ids")
#: Value in ``label`` and ``multilabel`` of a vertex without a known label.
NO_LABEL: Final = -1

#: One less than the largest int32, so that the number of classes is an int32, too.
_MAX_LABEL = np.iinfo(np.int32).max - 1
#: From here on, doubles are not all integers apart from each other.
_EXACT = 1 << 53


@dataclass(frozen=True, kw_only=True)
class VertexArray:
    """One array with a row per vertex.

    Attributes:
        name: of the array in every artifact; no other array of shards may have it.
        help: help of the option that names a file; empty if the array has no option.
        given_as: the option of an array with one column, whose file holds this array if it has several.
        dims: named dimensions, without the dimension of the vertices: none, or one.
        dtypes: allowed dtypes; sources give the first, and ingest stores it unless another one is asked for.
        kinds: kinds of dtypes, as NumPy abbreviates them, that a column in a file may have.
        expected: the values that a file may hold, for errors.
        words: what text files may hold instead of some numbers: words of at most 12 lower-case letters.
        fill: value of a vertex that is not in a table, of an empty cell of text, and of NaN in a file of floating-point
            numbers; None if every vertex needs a value.
        lowest, highest: limits of the values; None for the dtype's limits.
        below: the fact in a manifest that all values are below.
        is_label: training learns to predict the array.
        export: the table of ``gnnloom export`` that holds the array.
        count: facts for the manifest about some rows; ``num_*`` are maxima, all others are added up.
    """

    name: str
    help: str = ""
    given_as: str = ""
    dims: tuple[str, ...] = ()
    dtypes: tuple[str, ...]
    kinds: str = "iuf"
    expected: str
    words: Mapping[str, int] = field(default_factory=dict, compare=False)
    fill: float | None = None
    lowest: int | None = None
    highest: int | None = None
    below: str = ""
    is_label: bool = False
    export: str = "labels"
    count: Callable[[NDArray[Any]], dict[str, int]] = lambda _: {}

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that sources give."""
        return np.dtype(self.dtypes[0])

    @property
    def text_kinds(self) -> str:
        """Kinds of dtypes of text that a column in a file may have."""
        return "US" if self.words else ""

    @property
    def takes_nan(self) -> bool:
        """Whether a file may have NaN, or text an empty cell, for an unknown value."""
        return self.fill is not None

    @property
    def option(self) -> str:
        """The option that names the file; users know the array by it."""
        return self.given_as or self.name

    def limits(
        self, facts: Mapping[str, Any] = MappingProxyType({}), stored: np.dtype[Any] | None = None
    ) -> tuple[float, float]:
        """The lowest and the highest value, which are integers for an array of integers.

        Args:
            facts: of the manifest; without the one that bounds the values, the limits are the source's limits.
            stored: the dtype in which it is stored, if it is not the one of sources.
        """
        if self.dtype.kind == "f":
            largest = min(float(np.finfo(each).max) for each in (self.dtype, stored or self.dtype))
            return -largest, largest
        full = np.iinfo(self.dtype)
        highest = facts[self.below] - 1 if self.below in facts else self.highest
        return int(full.min) if self.lowest is None else self.lowest, int(full.max) if highest is None else highest

    def convert(self, values: NDArray[Any]) -> tuple[NDArray[Any], tuple[int, int] | None]:
        """Convert what a source holds.

        Args:
            values: (num_rows, num_columns) numbers or bool; or text, if the array has words.

        Returns:
            (num_rows, num_columns), or (num_rows,) for an array with one dimension, as stored; and the row and column
            of the first value that cannot be, or None.
        """
        if values.dtype.kind in "USO":
            texts = values.reshape(-1).tolist()
            number_of = {text: self._of_text(text) for text in set(texts)}
            values = np.array([number_of[text] for text in texts], np.float64).reshape(values.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            stored = values.astype(self.dtype)
        right = np.isfinite(stored) if self.dtype.kind == "f" else self._holds(values)
        if self.takes_nan and values.dtype.kind == "f":
            unknown = np.isnan(values)
            stored[unknown] = self.fill
            right |= unknown
        wrong = None
        if not right.all():
            row, column = np.argwhere(~right)[0].tolist()
            wrong = row, column
        return stored if self.dims else stored[:, 0], wrong

    def _of_text(self, text: Any) -> float:
        """The number that a word or some digits stand for: NaN for none, and infinity for anything else."""
        word = (text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text or "")).strip().lower()
        if word in self.words:
            return self.words[word]
        return np.nan if not word else int(word) if word.isdecimal() and len(word) < 12 else np.inf

    def _holds(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether the array, of integers, can hold each of some numbers."""
        lowest, highest = self.limits()
        if values.dtype.kind == "f":
            # float32 would round the limits.
            values = values.astype(np.float64)
            lowest, highest = max(lowest, -_EXACT), min(highest, _EXACT)
        held: NDArray[np.bool_] = (values >= lowest) & (values <= highest)
        return held & (np.floor(values) == values) if values.dtype.kind == "f" else held

    def is_known(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """(num_rows,) bool; whether a value of a row, (num_rows, ...) as stored, differs from ``fill``."""
        known: NDArray[np.bool_] = ~np.isnan(rows) if rows.dtype.kind == "f" else rows != self.fill
        return np.asarray(known.any(axis=1), bool) if self.dims else known

    def facts_of(self, rows: NDArray[Any]) -> dict[str, int]:
        """Facts about rows, (num_rows, ...) as stored, for a manifest; see ``count``."""
        unlabeled = {"unlabeled": int(np.count_nonzero(~self.is_known(rows)))} if self.is_label else {}
        return self.count(rows) | unlabeled


def split_part(name: str) -> str | None:
    """The part of a split whose vertices an array holds, from its name.

    >>> split_part("val_mask"), split_part("Training"), split_part("label")
    ('valid', 'train', None)
    """
    for ending in _SPLIT_ENDINGS:
        code = SPLIT_WORDS.get(name.lower().removesuffix(ending), SPLIT["none"])
        if name.lower().endswith(ending) and code != SPLIT["none"]:
            return next(part for part, number in SPLIT.items() if number == code)
    return None


def _count_splits(codes: NDArray[np.uint8]) -> dict[str, int]:
    return {name: int(np.count_nonzero(codes == code)) for name, code in SPLIT.items() if name != "none"}


_ARRAYS = (
    VertexArray(
        name="feature",
        help="(n, F) numbers: .npy, .npz, .parquet, or text.",
        dims=("feature",),
        dtypes=("float32", "float16", "float64"),
        expected="finite float32 features",
        export="features",
    ),
    VertexArray(
        name="label",
        help="(n,) classes from 0, -1 for none; or (n, C) zeros and ones.",
        dtypes=("int32",),
        expected=f"a class from 0 to {_MAX_LABEL:,}, or -1 or NaN for no label (give numbers to predict as the target)",
        fill=NO_LABEL,
        lowest=NO_LABEL,
        highest=_MAX_LABEL,
        below="num_classes",
        is_label=True,
        count=lambda rows: {"num_classes": int(rows.max()) + 1},
    ),
    VertexArray(
        name="multilabel",
        given_as="label",
        dims=("class",),
        dtypes=("int8",),
        kinds="iufb",
        expected="labels of 0 or 1, or -1 or NaN for unknown",
        fill=NO_LABEL,
        lowest=NO_LABEL,
        highest=1,
        is_label=True,
        count=lambda rows: {"num_classes": rows.shape[1]},
    ),
    VertexArray(
        name="target",
        help="(n,) or (n, C) numbers to predict, NaN if unknown, for a regression.",
        dims=("target",),
        dtypes=("float32",),
        expected="finite float32 numbers, or NaN for unknown",
        fill=np.nan,
        is_label=True,
        count=lambda rows: {"num_targets": rows.shape[1]},
    ),
    VertexArray(
        name="split",
        help="(n,) codes 0 none, 1 train, 2 valid, 3 test, or in text these words; or the vertices of each part: .npz,"
        " .pt, or a folder with train.csv, valid.csv and test.csv.",
        dtypes=("uint8",),
        kinds="iu",
        expected=f"a split code ({', '.join(f'{code} {name}' for name, code in SPLIT.items())})",
        words=SPLIT_WORDS,
        fill=SPLIT["none"],
        highest=max(SPLIT.values()),
        count=_count_splits,
    ),
)

#: All arrays by name, in the order in which they are listed.
VERTEX_ARRAYS: Final[Mapping[str, VertexArray]] = MappingProxyType({array.name: array for array in _ARRAYS})
#: Names of the arrays that training learns to predict; vertex data have at most one such array.
LABELS: Final = tuple(name for name, array in VERTEX_ARRAYS.items() if array.is_label)


def label_name(names: Container[str]) -> str:
    """The array of labels that is among some names; ``label`` if none is."""
    return next((name for name in LABELS if name in names), LABELS[0])


def as_trained(name: str, rows: NDArray[Any]) -> NDArray[Any]:
    """Rows of an array of labels, as losses of torch take them.

    Returns:
        (num_rows,) int64 classes, -1 for none; or (num_rows, ...) float32 with NaN for unknown labels or numbers.
    """
    if name == "label":
        return rows.astype(np.int64)
    return np.where(rows < 0, np.float32(np.nan), rows).astype(np.float32) if name == "multilabel" else rows


def widened(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which other programs get a stored array: few read float16."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def missing_for_training(names: Container[str]) -> list[str]:
    """Names of arrays that training needs and that are missing from ``names``."""
    return [name for name in ("feature", label_name(names), "split") if name not in names]


def array_in_file(option: str, num_columns: int) -> str:
    """Name of the array in the file that an option names."""
    wide = (name for name, array in VERTEX_ARRAYS.items() if array.given_as == option)
    return next(wide, option) if num_columns > 1 else option


def vertex_bounds(name: str, facts: Mapping[str, Any]) -> tuple[int, int] | None:
    """The smallest value that an array of integers may hold, and one more than the largest; None for any other array.

    Args:
        facts: of the artifact's manifest.
    """
    if name not in VERTEX_ARRAYS or VERTEX_ARRAYS[name].dtype.kind == "f":
        return None
    lowest, highest = VERTEX_ARRAYS[name].limits(facts)
    return int(lowest), int(highest) + 1
