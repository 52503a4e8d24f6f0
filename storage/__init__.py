"""Datasets on disk and the ways to read them."""

from gnnloom.storage.arrays import ReadCounter
from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.csr import CSR
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.graph import Graph
from gnnloom.storage.partition import Partition
from gnnloom.storage.row_shards import RowShards
from gnnloom.storage.vertices import Vertices

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
