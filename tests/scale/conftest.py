"""What the tests of counts share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def rare_collections() -> Iterator[None]:
    """Look for garbage rarely: plans of large graphs are many objects and no garbage, and looking takes an eighth."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 50)
    yield
    gc.set_threshold(*before)
