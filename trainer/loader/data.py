"""Batches as ``Data`` or ``HeteroData`` of PyTorch Geometric, which is imported only here."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from gnnloom.storage.errors import MissingPackageError
from gnnloom.trainer.loader.streams import Fields

if TYPE_CHECKING:
    from torch_geometric.data.data import Data
    from torch_geometric.data.hetero_data import HeteroData


def check_installed() -> None:
    """Check that PyTorch Geometric can be imported, without importing it.

    Raises:
        MissingPackageError: it is not installed.
    """
    if importlib.util.find_spec("torch_geometric") is None:
        raise MissingPackageError("loader needs torch_geometric: `pip install 'gnnloom[interop]'`")


def as_data(fields: Fields, *, has_types: bool) -> Data | HeteroData:
    """A batch; its tensors are not copied."""
    # Importing them takes seconds, and they need not be installed.
    from torch_geometric.data.data import Data  # noqa: PLC0415
    from torch_geometric.data.hetero_data import HeteroData  # noqa: PLC0415

    return HeteroData(fields) if has_types else Data(**fields)
