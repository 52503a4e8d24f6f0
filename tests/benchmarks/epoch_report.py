"""What bench_epoch prints: a table for each case, and its goals."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from epoch_sides import SIDES, Case

#: Every figure of a side, and its unit.
FIGURES = {"wall": "s", "processor": "s", "total_peak": "B", "faults": "faults"}
_TIMES = ("wall", "processor")
_TOLERANCE, _TOLERANCE_BF16 = 1e-4, 1e-2

Found = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Goal:
    """A ratio of two sides of every case of a model or a graph, and its bounds."""

    side: str
    over: str
    least: float
    most: float = math.inf
    figures: tuple[str, ...] = _TIMES
    cases: str = "gcn"

    def applies(self, case: Case, found: Found) -> bool:
        """Whether the case has this goal, and both sides."""
        return (
            self.cases in {case.model, case.graph.split("-", maxsplit=1)[0]} and {self.side, self.over} <= found.keys()
        )

    def line(self, case: Case, found: Found) -> str:
        """The ratios, and whether they are within the bounds."""
        ratios = {name: found[self.side][name] / found[self.over][name] for name in self.figures}
        shown = [
            f"{name} {ratio:.2f}x ({'met' if self.least <= ratio <= self.most else 'not met'})"
            for name, ratio in ratios.items()
        ]
        bounds = f"at least {self.least}x" + ("" if math.isinf(self.most) else f", at most {self.most}x")
        return f"GOAL {case.title}: {self.side} over {self.over}: {', '.join(shown)}; {bounds}"


#: The fastest of PyG's sides by wall time, whichever that is.
FASTEST = "PyG's fastest"
_PYG = tuple(key for key, side in SIDES.items() if not side.ranks)
#: PyG takes longer and more memory than a GCN of gnnloom, which is compared as one gets it and with the same products;
#: two ranks of one thread are as fast as one rank of two.
GOALS = (
    Goal(FASTEST, "1", 4),
    Goal(FASTEST, "1-same", 3),
    Goal(FASTEST, "1-bf16", 8),
    Goal(FASTEST, "1-bf16-same", 4),
    Goal("csr", "1", 2, figures=("total_peak",)),
    Goal("2", "1", 0.85, 1.15, cases="lattice"),
    Goal("2-bf16", "1-bf16", 0.85, 1.15, cases="lattice"),
)
#: Sides that the others are compared with in the tables.
_BASES = ("1", "1-same", "1-bf16", "1-bf16-same")


def report(case: Case, found: Found, hindered: Mapping[str, str]) -> None:
    """Print the figures of the sides of a case, lines of results, and lines of goals."""
    check_losses(found)
    known = with_fastest(found)
    bases = [key for key in _BASES if key in found]
    print(f"\n{case.title}: {len(os.sched_getaffinity(0))} cores; glibc keeps freed memory; losses agree")
    heads = [f"{name} / {key}" for key in bases for name in ("wall", "cpu")]
    print(f"{'':22}{'wall s':>9}{'cpu s':>9}{'MB peak':>9}{'faults':>9}" + "".join(f"{head:>18}" for head in heads))
    for key, each in found.items():
        numbers = f"{each['wall']:9.3f}{each['processor']:9.3f}{each['total_peak'] / 1e6:9.0f}{each['faults']:9.0f}"
        ratios = [each[name] / found[base][name] for base in bases for name in _TIMES]
        print(f"{SIDES[key].title:22}{numbers}" + "".join(f"{ratio:17.2f}x" for ratio in ratios))
    for key, reason in hindered.items():
        print(f"{SIDES[key].title:22} skipped: {reason}")
    lines = [
        f"RESULT epoch_{case.title.replace(' ', '_')}_{key}_{name} {each[name]:.4g} {unit}"
        for key, each in found.items()
        for name, unit in FIGURES.items()
    ]
    print("\n".join([*lines, *(goal.line(case, known) for goal in GOALS if goal.applies(case, known))]))
    sys.stdout.flush()


def with_fastest(found: Found) -> Found:
    """The figures of the sides, and those of PyG's fastest."""
    peers = [found[key] for key in _PYG if key in found]
    return {**found, FASTEST: min(peers, key=lambda each: float(each["wall"]))} if peers else found


def check_losses(found: Found) -> None:
    """Check that all sides trained the same model.

    Raises:
        SystemExit: losses differ by more than rounding.
    """
    first, *others = found
    expected: Sequence[float] = found[first]["loss"]
    for key in others:
        losses = found[key]["loss"]
        worst = max(abs(a - b) / abs(a) for a, b in zip(expected, losses, strict=True))
        bf16 = "bf16" in {SIDES[first].precision, SIDES[key].precision}
        if worst > (_TOLERANCE_BF16 if bf16 else _TOLERANCE):
            titles = f"{SIDES[key].title} and {SIDES[first].title}"
            raise SystemExit(f"{titles}: losses differ by {worst:.2g}: {losses}, {expected}")
