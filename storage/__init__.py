"""Datasets on disk and the ways to read them."""

from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.row_shards import RowShards
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.matrix.csr import CSR

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
