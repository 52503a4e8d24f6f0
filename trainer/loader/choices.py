"""Names that options of the loader choose between. Loads neither torch nor numba."""

from __future__ import annotations

from typing import Final

#: Types of the features of a batch; ``none`` leaves them out.
FEATURES: Final = ("float32", "bf16", "float64", "none")
#: The split of all vertices.
ALL_VERTICES: Final = "all"
#: The weights of edges as they are stored.
STORED: Final = "stored"
