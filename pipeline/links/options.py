"""The options of links that are drawn from a graph."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Group, check_options, option

_option = partial(option, group=Group.SAMPLING)


@dataclass(frozen=True, kw_only=True)
class DrawOptions:
    """Which edges are held out of a graph."""

    valid: float = _option(0.05, "Fraction of the edges to hold out for validation.", is_common=True, above=0, below=1)
    test: float = _option(0.1, "Fraction of the edges to hold out for testing.", is_common=True, above=0, below=1)
    disjoint: float = _option(
        0.0,
        "Fraction of the other edges to train on, without leaving them in the graph that the model reads; 0 to train on"
        " all of them, and leave them there.",
        is_common=True,
        below=1,
    )
    seed: int = _option(0, "Seed of the choice.", is_common=True, least=0)

    def __post_init__(self) -> None:
        check_options(self)
        if self.valid + self.test >= 1:
            raise InputError(f"valid {self.valid} and test {self.test}: expected a sum below 1, which leaves edges")

    @property
    def parameters(self) -> dict[str, Any]:
        """What determines the bytes of the links, besides the graph."""
        return {"method": "random", **asdict(self)}

    def ranks(self, num_edges: int) -> tuple[int, ...]:
        """How many edges are for testing, for testing or validation, and for one of these or held out for training.

        Raises:
            InputError: a split gets none.
        """
        # Exact: 0.29 * 100 is 28.999999999999996 as a float.
        valid, test, disjoint = (Fraction(str(each)) for each in (self.valid, self.test, self.disjoint))
        counts = {"test": int(test * num_edges), "valid": int(valid * num_edges)}
        left = num_edges - sum(counts.values())
        counts |= {"disjoint": int(disjoint * left)} if disjoint else {}
        for name, count in counts.items():
            if not count:
                raise InputError(
                    f"{name} {getattr(self, name)}: of {num_edges:,} edges, that is none; use a larger one"
                )
        if not left or counts.get("disjoint") == left:
            raise InputError(f"of {num_edges:,} edges, none is left in the graph; hold out fewer")
        ends: list[int] = []
        for count in counts.values():
            ends.append((ends[-1] if ends else 0) + count)
        return tuple(ends)
