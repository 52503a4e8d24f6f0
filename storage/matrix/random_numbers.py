"""Counter-based random numbers: a hash of a key and a counter, so that any range of them can be made anywhere.

splitmix64 (Steele, Lea, Flood, OOPSLA 2014) used as a counter-based generator (Salmon et al., SC 2011):
the number at counter c is mix(key + c * golden ratio).
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.matrix.permutation import mix

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_TO_UNIT = 1.0 / (1 << 53)


def stream_key(seed: int, stream: str) -> np.uint64:
    """The key of one stream of random numbers of a seed; streams of other names or seeds are independent."""
    digest = hashlib.sha256(f"{seed}/{stream}".encode()).digest()
    return np.uint64(int.from_bytes(digest[:8], "little"))


@njit(cache=True, nogil=True, inline="always")
def unit(key: np.uint64, counter: np.uint64) -> float:
    """A number in [0, 1)."""
    return np.float64(mix(key + counter * _GOLDEN) >> np.uint64(11)) * _TO_UNIT


@njit(cache=True, nogil=True)
def _fill_uniform(key: np.uint64, start: int, out: NDArray[np.float64]) -> None:
    for k in range(len(out)):
        out[k] = unit(key, np.uint64(start + k))


@njit(cache=True, nogil=True)
def _fill_normal(key: np.uint64, start: int, out: NDArray[np.float32]) -> None:
    """Box and Muller 1958: counters 2j and 2j+1 make the numbers 2j and 2j+1."""
    k, count = 0, len(out)
    while k < count:
        pair = (start + k) // 2 * 2
        radius = math.sqrt(-2.0 * math.log(1.0 - unit(key, np.uint64(pair))))
        angle = 2.0 * math.pi * unit(key, np.uint64(pair + 1))
        if pair == start + k:
            out[k] = radius * math.cos(angle)
            k += 1
        if k < count:
            out[k] = radius * math.sin(angle)
            k += 1


def uniform(key: np.uint64, start: int, stop: int) -> NDArray[np.float64]:
    """Numbers ``start`` to ``stop`` of the stream, uniform in [0, 1)."""
    out = np.empty(stop - start, np.float64)
    _fill_uniform(key, start, out)
    return out


def normal(key: np.uint64, start: int, stop: int) -> NDArray[Any]:
    """Numbers ``start`` to ``stop`` of the stream, standard normal, float32."""
    out = np.empty(stop - start, np.float32)
    _fill_normal(key, start, out)
    return out
