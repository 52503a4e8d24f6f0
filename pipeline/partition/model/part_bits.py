"""Sets of parts as bits in 64-bit words, for kernels that visit the parts of a net."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

WORD_BITS = 64
#: Every window of six bits of this sequence is different, so a product with a single bit names that bit.
_DE_BRUIJN: Final = np.uint64(0x03F79D71B4CB0A89)
#: The bit that a window of the sequence stands for.
_NUMBER: Final = np.argsort([((int(_DE_BRUIJN) << bit) & ((1 << 64) - 1)) >> 58 for bit in range(64)])


@njit(cache=True, nogil=True, inline="always")
def bit_of(index: int) -> np.uint64:
    """Return the bit of a part in its word, which is word ``index // WORD_BITS``."""
    # All operands are uint64, because numba promotes a mix of signed and unsigned numbers.
    return np.uint64(1) << np.uint64(index % WORD_BITS)


@njit(cache=True, nogil=True, inline="always")
def lowest_bit(bits: np.uint64) -> np.uint64:
    """Return the lowest bit set; a loop that clears it visits the bits of a word in order."""
    return bits & (~bits + np.uint64(1))


@njit(cache=True, nogil=True, inline="always")
def bit_number(bit: np.uint64) -> int:
    """Return the number of the only bit set, from the top six bits of its product with a de Bruijn sequence.

    Leiserson, Prokop, Randall, Using de Bruijn sequences to index a 1 in a computer word (MIT, 1998).
    """
    return int(_NUMBER[(bit * _DE_BRUIJN) >> np.uint64(58)])
