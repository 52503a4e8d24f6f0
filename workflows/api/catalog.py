"""Catalogs and datasets for scripts and notebooks: the classes of storage, with views for other libraries."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from gnnloom.storage import Catalog as StoredCatalog
from gnnloom.storage import Dataset as StoredDataset
from gnnloom.storage import TypedGraph
from gnnloom.storage.artifacts.typed.typed_names import REVERSE
from gnnloom.storage.errors import InputError, needing
from gnnloom.workflows.api.html import fact_table, row_table
from gnnloom.workflows.formatting import readable_bytes
from gnnloom.workflows.interop.graph_libraries import MAX_NONZEROS

if TYPE_CHECKING:
    import scipy.sparse
    import xarray
    from torch_geometric.data.data import Data
    from torch_geometric.data.hetero_data import HeteroData


class Dataset(StoredDataset):
    """One dataset: its graph, vertex data, partitions, shards and runs, and the same data for other libraries.

    Get one from a :class:`Catalog`, or from the function that makes it, such as ``gnnloom.ingest``.
    """

    def to_scipy(
        self, graph: str | None = None, max_nnz: int = MAX_NONZEROS, relation: str | None = None
    ) -> scipy.sparse.csr_array[Any]:
        """Load the adjacency as a SciPy matrix, in which A[i, j] is the edge j -> i.

        Args:
            graph: key, to choose between several graphs.
            max_nnz: largest number of nonzeros to load.
            relation: of a graph with types, the relation to load, or ``rev_`` and its name for the reverse.

        Raises:
            NotFoundError: the dataset has no graph.
            BudgetError: the graph has more than ``max_nnz`` nonzeros.
        """
        if relation is None:
            return self.graph(graph).to_scipy(max_nnz)
        typed = self.typed_graph(graph)
        is_stored = relation in {each.name for each in typed.relations}
        matrix = typed.reverse(relation) if relation.startswith(REVERSE) and not is_stored else typed.relation(relation)
        return matrix.to_scipy(max_nnz)

    def to_pyg(self, graph: str | None = None, max_nnz: int = MAX_NONZEROS) -> Data | HeteroData:
        """Load the dataset as PyTorch Geometric's ``Data``, or ``HeteroData`` if its graph has types.

        See ``interop/graph_libraries.py``.

        Raises:
            MissingPackageError: PyTorch Geometric is not installed.
            NotFoundError, BudgetError: as :meth:`to_scipy`.
        """
        with needing("to_pyg", "gnnloom[interop]"):
            from gnnloom.workflows.interop.graph_libraries import to_pyg

            return to_pyg(self, graph, max_nnz)

    def to_dgl(self, graph: str | None = None, max_nnz: int = MAX_NONZEROS) -> Any:
        """Load the dataset as a ``DGLGraph``; see :func:`gnnloom.workflows.interop.graph_libraries.to_dgl`.

        Raises:
            MissingPackageError: DGL is not installed.
            NotFoundError, BudgetError: as :meth:`to_scipy`.
        """
        with needing("to_dgl", "dgl"):
            from gnnloom.workflows.interop.graph_libraries import to_dgl

            return to_dgl(self, graph, max_nnz)

    def to_xarray(self, graph: str | None = None, vertices: str | None = None) -> xarray.Dataset:
        """Open the arrays over the vertices, loaded on access, as an xarray Dataset.

        See :func:`gnnloom.workflows.interop.xarray_view.to_xarray`.

        Raises:
            MissingPackageError: xarray is not installed.
            NotFoundError: the dataset has neither a graph nor vertices.
        """
        with needing("to_xarray", "gnnloom[xarray]"):
            from gnnloom.workflows.interop.xarray_view import to_xarray

            return to_xarray(self, graph, vertices)

    def _repr_html_(self) -> str:
        """A table for notebooks: every artifact with its parameters and size, and the runs."""
        rows = [
            (info.kind, info.key, _plain(info.parameters), info.state, readable_bytes(info.stored_bytes()))
            for info in self.artifacts()
        ]
        rows += [("run", name, "", "", "") for name in self.runs()]
        facts = fact_table(f"dataset {self.name}", {"folder": str(self.path)})
        keys = [info.key for info in self.ingested_graphs() if info.state == "complete" and info.is_typed]
        tables = "".join(_type_tables(self.typed_graph(key)) for key in keys)
        return facts + row_table(("kind", "key", "parameters", "state", "size"), rows) + tables


def _type_tables(graph: TypedGraph) -> str:
    """Tables of the types and relations of a graph, for notebooks."""
    types = [(each.name, f"{each.count:,}") for each in graph.types]
    relations = [
        (each.name, each.source.name, each.target.name, f"{each.nnz:,}", ", ".join(each.edge_columns))
        for each in graph.relations
    ]
    head = ("relation", "from", "to", "edges", "columns")
    return row_table(("type", "vertices"), types) + row_table(head, relations)


class Catalog(StoredCatalog):
    """A directory of datasets.

    Examples:
        >>> catalog = gnnloom.Catalog("catalog")      # doctest: +SKIP
        >>> catalog["cora"].to_pyg()                  # doctest: +SKIP
        >>> catalog["cora"].verify()                  # doctest: +SKIP
    """

    def __init__(self, root: Path | str | None = None) -> None:
        """Open a catalog, which need not exist yet.

        Args:
            root: its directory; by default ``$GNNLOOM_CATALOG``, or else ``catalog`` in the current directory.
        """
        super().__init__(os.environ.get("GNNLOOM_CATALOG", "catalog") if root is None else root)

    def _open(self, path: Path) -> Dataset:
        return Dataset(path)

    def import_dataset(self, file: Path | str, name: str | None = None) -> Dataset:
        """Import what :meth:`Dataset.export` wrote; see :mod:`gnnloom.storage.upkeep.archive_import`."""
        return self.dataset(super().import_dataset(file, name).name)

    def _repr_html_(self) -> str:
        """A table of the datasets, for notebooks."""
        rows = [(dataset.name, str(len(dataset.artifacts())), str(len(dataset.runs()))) for dataset in self.datasets()]
        facts = fact_table("catalog", {"folder": str(self.root)})
        return facts + row_table(("dataset", "artifacts", "runs"), rows)


#: What stands for a catalog: its directory, or None for the default.
CatalogLike: TypeAlias = StoredCatalog | Path | str | None
#: What stands for a dataset: itself, or its name in the catalog.
DatasetLike: TypeAlias = StoredDataset | str


def as_catalog(catalog: CatalogLike) -> Catalog:
    """Open the catalog that an argument stands for."""
    return Catalog(catalog.root if isinstance(catalog, StoredCatalog) else catalog)


def as_dataset(dataset: DatasetLike, catalog: CatalogLike = None) -> Dataset:
    """Open the dataset that an argument stands for.

    Args:
        dataset: the dataset, or its name.
        catalog: where to look for the name; see :func:`as_catalog`.

    Raises:
        NotFoundError: there is no such dataset.
        InputError: this is not the name of a dataset, or a dataset was given along with another catalog.
    """
    if isinstance(dataset, str):
        return as_catalog(catalog)[dataset]
    if catalog is not None and as_catalog(catalog).root != dataset.path.parent:
        raise InputError(f"{dataset.path} is not in catalog {as_catalog(catalog).root}; leave out the catalog")
    return Dataset(dataset.path)


def _plain(parameters: dict[str, Any]) -> str:
    """The parameters that are single values, as text."""
    return ", ".join(f"{name}={value}" for name, value in parameters.items() if isinstance(value, str | int | float))
