"""Counter-based random numbers: each is a hash of a key and a counter, so any range can be computed anywhere.

splitmix64 (Steele, Lea, Flood, OOPSLA 2014) used as a counter-based generator (Salmon et al., SC 2011): the number at
counter c is mix(key + c * golden ratio).
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.permutation import GOLDEN, mix

#: Scales the upper 53 bits, the precision of float64, to [0, 1).
_TO_UNIT = 1.0 / (1 << 53)


def stream_key(seed: int, stream: str) -> np.uint64:
    """Key of one stream of random numbers; streams with other seeds or names are independent."""
    # A cryptographic hash, so that neighboring seeds give unrelated keys; ``hash`` of Python differs from run to run.
    digest = hashlib.sha256(f"{seed}/{stream}".encode()).digest()
    return np.uint64(int.from_bytes(digest[:8], "little"))


@kernel(inline="always")
def unit(key: np.uint64, counter: np.uint64) -> float:
    """The number of a stream at one counter, uniform in [0, 1)."""
    # By way of int64, which processors convert to float64 in one instruction; unsigned numbers take several.
    return np.float64(np.int64(mix(key + counter * GOLDEN) >> np.uint64(11))) * _TO_UNIT


@kernel(inline="always")
def below(key: np.uint64, counter: int, bound: int) -> int:
    """The number of a stream at one counter, uniform in 0..bound-1; ``bound`` is from 1 to 2^53."""
    # Scaled instead of a modulo, which favors small numbers. ``unit`` is at most 1 - 2^-53, so the product rounds to
    # less than ``bound``.
    return int(unit(key, np.uint64(counter)) * bound)


@kernel
def _fill_uniform(key: np.uint64, start: int, out: NDArray[np.float64]) -> None:
    for k in range(len(out)):
        out[k] = unit(key, np.uint64(start + k))


@kernel
def _fill_normal(key: np.uint64, start: int, out: NDArray[np.float32]) -> None:
    """Box, Muller (1958): the uniform numbers 2j and 2j+1 give the normal numbers 2j and 2j+1."""
    # Pairs are aligned to even counters, not to ``start``, so that any range gives the same numbers. A range that
    # begins at an odd counter takes only the second number of its first pair.
    k, count = 0, len(out)
    while k < count:
        pair = (start + k) // 2 * 2
        # 1 - unit lies in (0, 1], so the logarithm is finite.
        radius = math.sqrt(-2.0 * math.log(1.0 - unit(key, np.uint64(pair))))
        angle = 2.0 * math.pi * unit(key, np.uint64(pair + 1))
        if pair == start + k:
            out[k] = radius * math.cos(angle)
            k += 1
        if k < count:
            out[k] = radius * math.sin(angle)
            k += 1


@kernel
def _fill_normal_rows(
    key: np.uint64, rows: NDArray[np.int64], width: int, first: int, out: NDArray[np.float32]
) -> None:
    for row in range(len(rows)):
        _fill_normal(key, rows[row] * width + first, out[row])


def uniform(key: np.uint64, start: int, stop: int) -> NDArray[np.float64]:
    """(stop - start,) float64 numbers of the stream from ``start`` on, uniform in [0, 1)."""
    out = np.empty(stop - start, np.float64)
    _fill_uniform(key, start, out)
    return out


def normal(key: np.uint64, start: int, stop: int) -> NDArray[Any]:
    """(stop - start,) float32 numbers of the stream from ``start`` on, standard normal."""
    out = np.empty(stop - start, np.float32)
    _fill_normal(key, start, out)
    return out


def normal_rows(key: np.uint64, rows: NDArray[np.int64], width: int, start: int, stop: int) -> NDArray[Any]:
    """Columns ``start`` to ``stop`` of some rows of a matrix of standard normal numbers, ``width`` to a row.

    Row r has the numbers of the stream from ``r * width`` on.

    Args:
        rows: (num_rows,) int64.

    Returns:
        (num_rows, stop - start) float32.
    """
    out = np.empty((len(rows), stop - start), np.float32)
    _fill_normal_rows(key, rows, width, start, out)
    return out
