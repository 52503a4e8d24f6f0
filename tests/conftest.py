"""What all tests share: a catalog in a temporary folder, and the real graphs where they are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnloom.storage import Catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path / "catalog")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the real graphs that lies beside the checkout."""
    path = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"no real graphs at {path}")
    return path
