"""Valid labels: one class per vertex, a row of zeros and ones with one column per class, or numbers to predict."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.vertices import NO_LABEL

#: Message about a value that is not a binary label.
EXPECTED_BINARY: Final = "expected labels of 0 or 1, or -1 or NaN for unknown"


#: Message about a value that is not a number to predict.
EXPECTED_TARGET: Final = "expected finite float32 numbers, or NaN for unknown"


def targets(values: NDArray[Any]) -> tuple[NDArray[np.float32], int]:
    """Convert rows of numbers to predict.

    Args:
        values: (num_rows, num_targets) numbers.

    Returns:
        (num_rows, num_targets) float32 with NaN for unknown, and the first row with an infinite number; -1 if none has.
    """
    with np.errstate(over="ignore"):
        rows = values.astype(np.float32)
    wrong = np.isinf(rows).any(axis=1)
    return rows, int(np.argmax(wrong)) if wrong.any() else -1


def binary_labels(values: NDArray[Any]) -> tuple[NDArray[np.int8], int]:
    """Convert rows of a multi-label matrix.

    Args:
        values: (num_rows, num_classes) numbers or bool.

    Returns:
        (num_rows, num_classes) int8 with -1 for unknown, and the first row that has another value; -1 if none has.
    """
    unknown = values != values if values.dtype.kind == "f" else np.zeros(values.shape, bool)  # noqa: PLR0124 - NaN
    if values.dtype.kind in "if":
        unknown |= values == NO_LABEL
    wrong = ~(unknown | (values == 0) | (values == 1))
    row = int(np.argmax(wrong.any(axis=1))) if wrong.any() else -1
    return np.where(unknown, np.int8(NO_LABEL), values == 1).astype(np.int8), row
