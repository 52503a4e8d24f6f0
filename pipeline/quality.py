"""The figures by which a partition is judged, all measured on the stored graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.hypergraph import row_nonzeros
from gnnloom.pipeline.volume import Exchange
from gnnloom.storage.graph import Graph

#: Up to this many parts the matrix of rows exchanged stands in the manifest.
MATRIX_PARTS = 256


@dataclass(frozen=True)
class Load:
    """Work of the parts.

    Attributes:
        nonzeros: (P,) int64 nonzeros of each part's rows.
        vertices: (P,) int64 vertices of each part.
        heaviest_row: most nonzeros in one row.
    """

    nonzeros: NDArray[np.int64]
    vertices: NDArray[np.int64]
    heaviest_row: int


def measure_load(graph: Graph, part: NDArray[np.int32], num_parts: int) -> Load:
    """Sum up the rows of every part, one row block at a time.

    Args:
        part: (num_vertices,) int32; may be memory-mapped.
    """
    load = np.zeros(num_parts, dtype=np.int64)
    size = np.zeros(num_parts, dtype=np.int64)
    heaviest = 0
    for start, nonzeros in row_nonzeros(graph):
        owner = part[start : start + len(nonzeros)]
        np.add.at(load, owner, nonzeros)
        size += np.bincount(owner, minlength=num_parts)
        heaviest = max(heaviest, int(nonzeros.max(initial=0)))
    return Load(load, size, heaviest)


def describe_quality(
    method: str, imbalance: float, load: Load, forward: Exchange, backward: Exchange | None
) -> dict[str, Any]:
    """The figures of a partition as JSON.

    Args:
        imbalance: what was asked for.
        forward: rows exchanged for A H.
        backward: rows exchanged for the product with the transpose; None where it is the same.

    Returns:
        ``km1`` and ``volume_total`` (rows sent by all parts), ``volume_avg`` and ``volume_max`` (per part),
        ``receive_volume_max``, ``messages_avg`` and ``messages_max`` (parts that a part sends to), ``load_avg`` and
        ``load_max`` (nonzeros per part), ``imbalance`` (highest load over the average, less 1), ``imbalance_bound``
        (what was asked for, or what the heaviest row forces), ``vertices_min`` and ``vertices_max`` (per part); for
        directed graphs also ``volume_backward_total`` and so on.  Up to ``MATRIX_PARTS`` parts there is
        ``volume_matrix`` too: the rows that part [p] sends to part [q].
    """
    num_parts = len(load.nonzeros)
    average = int(load.nonzeros.sum()) / num_parts
    quality = {
        "parts": num_parts,
        "method": method,
        "km1": forward.total,
        "load_max": int(load.nonzeros.max()),
        "load_avg": average,
        "imbalance": float(load.nonzeros.max()) / average - 1 if average else 0.0,
        "imbalance_bound": max(imbalance, load.heaviest_row / average - 1) if average else imbalance,
        "vertices_min": int(load.vertices.min()),
        "vertices_max": int(load.vertices.max()),
        **_describe_exchange("", forward),
    }
    return quality if backward is None else quality | _describe_exchange("backward_", backward)


def _describe_exchange(direction: str, exchange: Exchange) -> dict[str, Any]:
    sent, messages = exchange.sent(), exchange.messages()
    figures: dict[str, Any] = {
        f"volume_{direction}total": exchange.total,
        f"volume_{direction}avg": exchange.total / exchange.num_parts,
        f"volume_{direction}max": int(sent.max()),
        f"receive_volume_{direction}max": int(exchange.received().max()),
        f"messages_{direction}total": int(messages.sum()),
        f"messages_{direction}avg": int(messages.sum()) / exchange.num_parts,
        f"messages_{direction}max": int(messages.max()),
    }
    if exchange.num_parts <= MATRIX_PARTS:
        figures[f"volume_{direction}matrix"] = exchange.matrix().tolist()
    return figures
