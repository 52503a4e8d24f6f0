"""The variants of a matrix that grid shards store. In a module of its own because plans need no reader."""

from __future__ import annotations

TRANSPOSED = {"even": "even_transposed", "odd": "odd_transposed", "even_transposed": "even", "odd_transposed": "odd"}


def stored_variants(*, symmetric: bool, double: bool) -> dict[str, str]:
    """For each variant, the equal one that is stored."""
    odd = "odd" if double else "even"
    # If A = A^T, then (Pr A Pc^T)^T = Pc A Pr^T: transposing exchanges even and odd.
    if symmetric:
        return {"even": "even", "odd": odd, "even_transposed": odd, "odd_transposed": "even"}
    even_transposed = "even_transposed"
    odd_transposed = "odd_transposed" if double else even_transposed
    return {"even": "even", "odd": odd, "even_transposed": even_transposed, "odd_transposed": odd_transposed}
