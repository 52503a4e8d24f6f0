"""Datasets on disk and every way to read them; this file exports the public API.

Imports NumPy, Zarr and numba, and no other room of gnnloom. From bottom to top, each room imports only those before it:
``errors``, ``meters`` and ``descriptors``; ``format`` and ``matrix``, which do not know each other; ``artifacts``;
``catalog``; ``runs``; ``checks`` and ``sampling``; ``upkeep``; ``public``. A new kind of artifact goes into
``artifacts``, a new check into ``checks``, a new method of datasets into ``upkeep`` and ``public``.
"""

from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.row_shards import RowShards
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.public import Catalog, Dataset

__all__ = [
    "CSR",
    "Catalog",
    "Dataset",
    "GnnloomError",
    "Graph",
    "Partition",
    "ReadCounter",
    "RowShards",
    "Vertices",
]
