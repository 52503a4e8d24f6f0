"""Common steps of kernels that move vertices between parts: sets of parts as bits, and randomness.

Sets of parts are bits in 64-bit words. Random are the order of visits, and the acceptance of moves that lose:
Kirkpatrick, Gelatt, Vecchi, Optimization by simulated annealing (Science 220, 1983).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.permutation import mix
from gnnloom.storage.matrix.random_numbers import unit

WORD_BITS = 64
#: Every window of six bits of this sequence is different, so a product with a single bit names that bit.
_DE_BRUIJN: Final = np.uint64(0x03F79D71B4CB0A89)
#: The bit that a window of the sequence stands for.
_NUMBER: Final = np.argsort([((int(_DE_BRUIJN) << bit) & ((1 << 64) - 1)) >> 58 for bit in range(64)])


@kernel(inline="always")
def bit_of(index: int) -> np.uint64:
    """Return the bit of a part in its word, which is word ``index // WORD_BITS``."""
    # All operands are uint64, because numba promotes a mix of signed and unsigned numbers.
    return np.uint64(1) << np.uint64(index % WORD_BITS)


@kernel(inline="always")
def lowest_bit(bits: np.uint64) -> np.uint64:
    """Return the lowest bit set; a loop that clears it visits the bits of a word in order."""
    return bits & (~bits + np.uint64(1))


@kernel(inline="always")
def bit_number(bit: np.uint64) -> int:
    """Return the number of the only bit set, from the top six bits of its product with a de Bruijn sequence.

    Leiserson, Prokop, Randall, Using de Bruijn sequences to index a 1 in a computer word (MIT, 1998).
    """
    return int(_NUMBER[(bit * _DE_BRUIJN) >> np.uint64(58)])


def shuffled(count: int, seed: np.uint64) -> NDArray[np.int64]:
    """Return the (count,) int64 numbers from 0 on, in a random order that depends on count and seed only."""
    key = np.empty(count, dtype=np.uint64)
    _fill_keys(seed, key)
    return np.argsort(key, kind="stable")


def cooling(heat: float, passes: int) -> list[float]:
    """Return the heat of each pass: linear, and 0 in the last two, which only improve.

    Args:
        heat: the loss that a pass before the first would accept with a chance of 1/e.
    """
    return [max(0.0, heat * (1 - (number + 1) / max(1, passes - 2))) for number in range(passes)]


@kernel(inline="always")
def accepts_move(gain: float, heat: float, key: np.uint64, vertex: int) -> bool:
    """Decide whether to make a move: always for a gain, else with a chance of exp(gain / heat), never without heat.

    Args:
        key: of the random numbers of this pass; each vertex has its own, whatever the order of visits.
    """
    # ``unit`` is below 1, so a move without loss is always accepted while there is heat.
    return gain > 0 or (heat > 0 and unit(key, np.uint64(vertex)) < np.exp(gain / heat))


@kernel
def _fill_keys(seed: np.uint64, key: NDArray[np.uint64]) -> None:
    begin = mix(seed + np.uint64(0x9E3779B97F4A7C15))
    # ``mix`` is a bijection, so different numbers have different sort keys.
    for k in range(len(key)):
        key[k] = mix(begin ^ np.uint64(k))
