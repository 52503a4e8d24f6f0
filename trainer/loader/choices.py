"""Names that options of the loader choose between. Loads neither torch nor numba."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

#: Types of the features of a batch; ``none`` leaves them out.
FEATURES: Final = ("float32", "bf16", "float64", "none")
#: The split of all vertices.
ALL_VERTICES: Final = "all"
#: Stands for the stored weights of edges.
STORED: Final = "stored"
#: Names that PyG gives the columns of edges.
EDGE_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {"weight": "edge_weight", "time": "time", "feature": "edge_attr", "label": "edge_label"}
)
