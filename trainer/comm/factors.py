"""Numbers of ranks as products of the sizes of a process grid's axes."""

from __future__ import annotations


def factorizations(number: int, num_axes: int) -> list[tuple[int, ...]]:
    """All ways to write ``number`` as an ordered product of ``num_axes`` factors, in ascending order."""
    if num_axes == 1:
        return [(number,)]
    # Numbers of ranks are small, so trial division is fast enough.
    divisors = [first for first in range(1, number + 1) if number % first == 0]
    return [(first, *rest) for first in divisors for rest in factorizations(number // first, num_axes - 1)]


def most_square(number: int, num_axes: int) -> tuple[int, ...]:
    """The factorization of ``number`` whose factors differ least, largest factor first."""
    # For a fixed product, the smallest sum belongs to the most even factors.
    return max(factorizations(number, num_axes), key=lambda factors: (-sum(factors), factors))
