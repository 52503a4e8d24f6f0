"""How many neighbors to draw. In a module of its own because the sampler imports numba."""

from __future__ import annotations

from typing import Final

#: The fan-out that takes all neighbors.
ALL: Final = -1
