"""The kinds of mini-batches, apart from the code that draws them, which imports numba: that takes half a second."""

from __future__ import annotations

from typing import Final

BATCHES: Final = ("vertex", "edge", "walk", "frontier")
