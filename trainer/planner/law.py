"""Estimates the exchange of a partition into any number of parts: a law fitted to known partitions, or a bound.

The rows that all parts send for a product grow about as a power of the number of parts: the surface of parts of a mesh
does, and measured partitions of skewed graphs follow it over some doublings. No partition sends more on average than a
random one, which bounds the law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean

from gnnloom.trainer.algorithms.workload import Exchange

#: The exponent if only one partition is known: the exponent of a surface in two dimensions. Assumed, not fitted.
_ASSUMED_EXPONENT = 0.5


@dataclass(frozen=True)
class KnownPartition:
    """A measured partition.

    Attributes:
        name: name of the method that made it.
        key: key of the artifact.
        exchange, exchange_back: exchanges for the product and for the product with the transpose.
        heaviest: nonzeros of the heaviest part over the average.
        covers: the two exchanges if sums may replace rows; None if the partition does not count them.
    """

    name: str
    key: str
    parts: int
    exchange: Exchange
    exchange_back: Exchange
    heaviest: float
    covers: tuple[Exchange, Exchange] | None = None

    def exchanges(self, *, cover: bool) -> tuple[Exchange, Exchange]:
        """The exchange of a product, and of a product with the transpose; a bound, if a cover is not counted."""
        rows = self.exchange, self.exchange_back
        return (self.covers or rows) if cover else rows


@dataclass(frozen=True)
class ExchangeLaw:
    """Rows exchanged for any number of parts.

    Attributes:
        factor, exponent: rows of all parts are factor * (parts - 1) ** exponent * num_vertices; no factor means that no
            partition is known, and the bound is used.
        uneven: rows of the busiest part over the average.
        heaviest: nonzeros of the heaviest part over the average.
        error: root-mean-square relative error of the fit; None with fewer than three partitions, which any power law
            fits exactly.
        source: how the law was obtained, as text for display.
    """

    num_vertices: int
    mean_degree: float
    factor: float | None
    exponent: float
    uneven: float
    heaviest: float
    error: float | None
    source: str

    @classmethod
    def fitted(cls, num_vertices: int, nnz: int, known: Sequence[KnownPartition]) -> ExchangeLaw:
        """Fit the law to partitions of one graph with two parts or more, by least squares of logarithms."""
        degree = max(0.0, nnz / max(1, num_vertices) - 1)
        points = [each for each in known if each.parts > 1 and each.exchange.rows > 0]
        if not points:
            source = (
                "no partition is stored: rows of a random partition if all vertices had the mean degree (an upper"
                " bound)"
            )
            return cls(num_vertices, degree, None, 1.0, 1.0, 1.0, None, source)
        xs = [log(each.parts - 1) for each in points]
        ys = [log(each.exchange.rows / num_vertices) for each in points]
        uneven = max(each.exchange.busiest_rows * each.parts / each.exchange.rows for each in points)
        heaviest = max(each.heaviest for each in points)
        mean_x, mean_y = fmean(xs), fmean(ys)
        spread = sum((x - mean_x) ** 2 for x in xs)
        exponent = _ASSUMED_EXPONENT
        if spread:
            exponent = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
        shift = mean_y - exponent * mean_x
        distinct = len({each.parts for each in points})
        off = sqrt(fmean((y - shift - exponent * x) ** 2 for x, y in zip(xs, ys, strict=True)))
        how = "fitted to" if distinct > 1 else f"with an assumed exponent of {_ASSUMED_EXPONENT} through"
        names = ", ".join(f"{each.name} ({each.parts} parts)" for each in points)
        error = exp(off) - 1 if distinct > 2 else None
        return cls(num_vertices, degree, exp(shift), exponent, uneven, heaviest, error, f"law {how} {names}")

    def random_rows(self, parts: int) -> float:
        """Rows that a random partition sends, if every vertex has the mean degree.

        The expected number of other parts that need a row is (P - 1) (1 - (1 - 1 / P)^degree), which is concave in the
        degree, so that unequal degrees send less.
        """
        missed: float = (1 - 1 / parts) ** self.mean_degree
        return self.num_vertices * (parts - 1) * (1 - missed)

    def at(self, parts: int) -> Exchange | None:
        """The exchange among some number of parts; None for one part."""
        if parts == 1:
            return None
        rows = self.random_rows(parts)
        if self.factor is not None:
            rows = min(rows, self.factor * float(parts - 1) ** self.exponent * self.num_vertices)
        # Every part sends to every other part as long as there are enough rows.
        messages = min(float(parts * (parts - 1)), rows)
        return Exchange(
            rows=rows,
            messages=messages,
            busiest_rows=min(rows, self.uneven * rows / parts),
            busiest_messages=messages / parts,
        )
