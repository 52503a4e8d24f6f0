"""Numbers of ranks as products of numbers along axes."""

from __future__ import annotations


def factorizations(number: int, num_axes: int) -> list[tuple[int, ...]]:
    """All ways to write ``number`` as a product of ``num_axes`` factors, in their order."""
    if num_axes == 1:
        return [(number,)]
    divisors = [first for first in range(1, number + 1) if number % first == 0]
    return [(first, *rest) for first in divisors for rest in factorizations(number // first, num_axes - 1)]


def most_square(number: int, num_axes: int) -> tuple[int, ...]:
    """The factors of ``number`` that differ least, the largest first."""
    return max(factorizations(number, num_axes), key=lambda factors: (-sum(factors), factors))
