"""Keyed permutations of 0..n-1 that are computed, not stored: O(1) memory for any n, on any worker or rank.

A Feistel network permutes the numbers of b bits, where 2^b is the smallest power of two that is at least n. A result
that is n or more is permuted again, until it is below n (cycle walking; less than two rounds on average). The halves
have b//2 and b - b//2 bits, so an odd b needs no larger domain.

On few ids a network reaches only some of the permutations, and not equally often. Up to 64 ids are therefore shuffled
in a table (Fisher-Yates), where every permutation is equally likely over the keys.

Luby, Rackoff (SIAM J. Comput. 17(2), 1988); cycle walking: Black, Rogaway (CT-RSA 2002); the shuffle: Durstenfeld
(CACM 7(7), 1964).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.errors import InputError
from gnnloom.storage.kernels import kernel

#: Half-rounds of the network. Part of the format, like everything that determines the order.
ROUNDS = 6
#: Largest number of ids that are shuffled in a table. Part of the format as well.
SHUFFLED = 64
#: ``_bits`` compares powers of two in int64, where 2^62 is the largest.
_MAX_SIZE = 1 << 62
#: Increment of splitmix64: 2^64 divided by the golden ratio, made odd.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
#: Description of an order that is stored rather than computed: vertices sorted by their part.
PARTITION_ORDER = {"type": "partition"}


@dataclass(frozen=True)
class KeyedPermutation:
    """The permutation of 0..size-1 with this key; equal size and key give the same order everywhere.

    Attributes:
        size: number of ids, from 0 to 2^62.
        key: any integer from 0 to 2^64 - 1.
    """

    size: int
    key: int

    def __post_init__(self) -> None:
        if not 0 <= self.size <= _MAX_SIZE:
            raise InputError(f"permutation of {self.size} ids: expected 0 to 2^62")
        if not 0 <= self.key < 1 << 64:
            raise InputError(f"permutation key {self.key}: expected 0 to 2^64 - 1")

    def forward(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """New ids of old ids.

        Args:
            ids: (num_ids,) integers in 0..size-1.

        Returns:
            (num_ids,) int64.

        Raises:
            IndexError: an id is not in 0..size-1.
        """
        return _permute_checked(self, ids, inverse=False)

    def inverse(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Old ids of new ids; the inverse of :meth:`forward`.

        Args:
            ids: (num_ids,) integers in 0..size-1.

        Returns:
            (num_ids,) int64.

        Raises:
            IndexError: an id is not in 0..size-1.
        """
        return _permute_checked(self, ids, inverse=True)

    @property
    def is_shuffle(self) -> bool:
        """Whether the ids are shuffled in a table."""
        return self.size <= SHUFFLED

    def to_json(self) -> dict[str, Any]:
        if self.is_shuffle:
            return {"type": "shuffle", "size": self.size, "key": self.key}
        return {"type": "feistel", "rounds": ROUNDS, "size": self.size, "key": self.key}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> KeyedPermutation:
        """The inverse of :meth:`to_json`.

        Raises:
            InputError: ``content`` describes another kind of permutation.
        """
        is_keyed = {"size", "key"} <= content.keys()
        permutation = cls(int(content["size"]), int(content["key"])) if is_keyed else None
        if permutation is None or content != permutation.to_json():
            raise InputError(
                f"permutation {dict(content)}: expected type 'shuffle' for up to {SHUFFLED} ids, or type 'feistel' with"
                f" {ROUNDS} rounds for more"
            )
        return permutation


def _permute_checked(permutation: KeyedPermutation, ids: NDArray[Any], *, inverse: bool) -> NDArray[np.int64]:
    given = np.ascontiguousarray(ids, dtype=np.int64)
    # Cycle walking returns to the range only from within it: an id outside could walk forever.
    if given.size and (int(given.min()) < 0 or int(given.max()) >= permutation.size):
        raise IndexError(f"ids from {given.min()} to {given.max()} do not lie in 0..{permutation.size - 1}")
    if permutation.is_shuffle:
        order = _shuffled(permutation.size, np.uint64(permutation.key))
        return (np.argsort(order) if inverse else order)[given]
    return permute_by_network(given, permutation.size, permutation.key, inverse=inverse)


def permute_by_network(ids: NDArray[np.int64], size: int, key: int, *, inverse: bool = False) -> NDArray[np.int64]:
    """New ids by the network alone, whatever the number of ids; see :class:`KeyedPermutation`.

    Args:
        ids: (num_ids,) contiguous; all in 0..size-1, which is not checked.
    """
    out = np.empty(ids.shape, dtype=np.int64)
    _walk(ids.reshape(-1), size, np.uint64(key), inverse, out.reshape(-1))
    return out


@kernel(inline="always")
def mix(value: np.uint64) -> np.uint64:
    """The finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014): every bit of the result depends on all bits."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@kernel
def _shuffled(size: int, key: np.uint64) -> NDArray[np.int64]:
    """New ids of 0..size-1, at most 64, by Fisher-Yates; number k of the key's stream places the k-th id."""
    order = np.arange(size)
    for last in range(size - 1, 0, -1):
        # Scaled instead of a modulo, which favors small numbers. The upper half of a number, times at most 64, fits.
        upper = mix(key + GOLDEN * np.uint64(last)) >> np.uint64(32)
        chosen = np.int64((upper * np.uint64(last + 1)) >> np.uint64(32))
        order[last], order[chosen] = order[chosen], order[last]
    return order


@kernel
def _round_keys(key: np.uint64) -> NDArray[np.uint64]:
    keys = np.empty(ROUNDS, dtype=np.uint64)
    for number in range(ROUNDS):
        # The output of SplitMix64 seeded with the key, so that similar keys give unrelated round keys.
        keys[number] = mix(key + GOLDEN * np.uint64(number + 1))
    return keys


@kernel
def _bits(size: int) -> int:
    bits = 0
    while (1 << bits) < size:
        bits += 1
    return bits


@kernel
def _walk(ids: NDArray[np.int64], size: int, key: np.uint64, inverse: bool, out: NDArray[np.int64]) -> None:
    # Arithmetic on ids only, no table: memory is independent of ``size``, and every id can be permuted alone.
    bits = _bits(size)
    low_bits = np.uint64(bits - bits // 2)
    low_mask = (np.uint64(1) << low_bits) - np.uint64(1)
    high_mask = (np.uint64(1) << np.uint64(bits // 2)) - np.uint64(1)
    keys = _round_keys(key)
    # A half-round xors one half with a hash of the other, so it is its own inverse, and the inverse applies the
    # half-rounds in the opposite order. Every operand is uint64: numba turns uint64 with int64 into float64.
    for k in range(len(ids)):
        value = np.uint64(ids[k])
        # Ends, because the cycle of the permutation through an id below ``size`` leads back to that id.
        while True:
            high, low = value >> low_bits, value & low_mask
            if inverse:
                for number in range(ROUNDS - 2, -1, -2):
                    low ^= mix(high ^ keys[number + 1]) & low_mask
                    high ^= mix(low ^ keys[number]) & high_mask
            else:
                for number in range(0, ROUNDS, 2):
                    high ^= mix(low ^ keys[number]) & high_mask
                    low ^= mix(high ^ keys[number + 1]) & low_mask
            value = (high << low_bits) | low
            if value < np.uint64(size):
                break
        out[k] = np.int64(value)
