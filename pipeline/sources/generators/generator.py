"""Common parts of generators: their descriptor, and a bijection that scrambles ids.

The options of ``gnnloom generate`` and the keys of recipes are derived from the descriptor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources import generators as room
from gnnloom.pipeline.sources.source import EdgeSource, VertexSource
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.storage.errors import InputError
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.permutation import mix
from gnnloom.storage.option import Option

#: The option of every generator.
SEED: Final = Option("seed", int, "Seed; equal seeds give equal graphs.", 0, least=0)

#: Largest number of edges to draw, which are millions of tasks.
_MOST_EDGES: Final = 1 << 44

#: Largest number of vertices of a stored graph whose ids are kept.
MOST_VERTICES: Final = 1 << 37


def check_size(name: str, num_vertices: int, num_edges: int) -> None:
    """Check that a graph can be generated.

    Raises:
        InputError: it has too many vertices or edges.
    """
    if num_vertices > MOST_VERTICES:
        raise InputError(f"{name}: {num_vertices:,} vertices, expected at most 2^37")
    if num_edges > _MOST_EDGES:
        raise InputError(f"{name}: {num_edges:,} edges to draw, expected at most 2^44")


@dataclass(frozen=True)
class Generator:
    """A family of synthetic graphs.

    Attributes:
        name: argument of ``gnnloom generate`` and value of a recipe's key ``format``.
        order: position in lists of generators.
        help: what the graphs are, in one line.
        open_edges: takes the options as keywords.
        options: options of ``open_edges`` and ``open_vertices``.
        open_vertices: takes the same options; None if the graphs have no vertex data.
    """

    name: str
    order: int
    help: str
    open_edges: Callable[..., EdgeSource]
    options: tuple[Option, ...]
    open_vertices: Callable[..., VertexSource] | None = None


@cache
def generators() -> Mapping[str, Generator]:
    """All generators by name, including generators of other packages."""
    return load_descriptors(room, "GENERATOR", "gnnloom.generators", Generator)


@kernel
def scramble_ids(ids: NDArray[np.int64], size: int, key: np.uint64) -> None:
    """Replace ids by their images under a keyed bijection, in place.

    Each round adds a key, multiplies by an odd number, and folds the high half into the low half. All three are
    bijections of the numbers with a fixed number of bits. An image that is not below ``size`` is mapped again until it
    is (cycle walking), less than twice on average. The bijection costs at most half as much as
    :class:`gnnloom.storage.matrix.permutation.KeyedPermutation`, which also has an inverse.

    Args:
        ids: (num_ids,) int64, below ``size``.
        size: the bijection maps the numbers below ``size`` to themselves.
        key: selects the bijection.
    """
    bits = 1
    while (1 << bits) < size:
        bits += 1
    mask, limit = (np.uint64(1) << np.uint64(bits)) - np.uint64(1), np.uint64(size)
    # At least half of the bits, so the upper part changes only bits below itself and the step can be undone.
    fold = np.uint64((bits + 1) // 2)
    first_key, second_key, third_key = mix(key), mix(key + np.uint64(1)), mix(key + np.uint64(2))
    # Odd multipliers have an inverse modulo a power of two, which makes the multiplication a bijection.
    first_odd, second_odd = mix(key + np.uint64(3)) | np.uint64(1), mix(key + np.uint64(4)) | np.uint64(1)
    # Cycle walking: repeat the rounds until the image is a valid id.
    for k in range(len(ids)):
        value = np.uint64(ids[k])
        while True:
            value = ((value ^ first_key) * first_odd) & mask
            value ^= value >> fold
            value = ((value + second_key) * second_odd) & mask
            value ^= value >> fold
            value = ((value + third_key) * first_odd) & mask
            value ^= value >> fold
            if value < limit:
                break
        ids[k] = np.int64(value)
