"""What labels may be: one class per vertex, or a row of zeros and ones, one per class."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.vertices import NO_LABEL

#: What is said of a value that is none of these.
EXPECTED_BINARY: Final = "expected labels of 0 or 1, or -1 or NaN where it is not known"


def binary_labels(values: NDArray[Any]) -> tuple[NDArray[np.int8], int]:
    """Rows of a multi-label matrix, with -1 where a label is not known.

    Args:
        values: (num_rows, num_classes) numbers or bool.

    Returns:
        (num_rows, num_classes) int8, and the first row that holds something else; -1 where there is none.
    """
    unknown = values != values if values.dtype.kind == "f" else np.zeros(values.shape, bool)  # noqa: PLR0124 - NaN
    if values.dtype.kind in "if":
        unknown |= values == NO_LABEL
    wrong = ~(unknown | (values == 0) | (values == 1))
    row = int(np.argmax(wrong.any(axis=1))) if wrong.any() else -1
    return np.where(unknown, np.int8(NO_LABEL), values == 1).astype(np.int8), row
