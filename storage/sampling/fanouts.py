"""How many neighbors to draw. Apart from the sampler, which loads numba."""

from __future__ import annotations

from typing import Final

#: The fan-out that takes all neighbors.
ALL: Final = -1
