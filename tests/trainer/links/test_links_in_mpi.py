"""Pairs on ranks of MPI: the losses, gradients, figures and best targets of one rank, and bytes as the pairs say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.mpi import run_program
from support.tolerance import assert_close


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """On one rank."""
    found: dict[str, Any] = run_program(1, "links", tmp_path_factory.mktemp("alone"), 1)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.long), 3, pytest.param(4, marks=pytest.mark.long)])
def test_several_ranks_find_what_one_finds(alone: dict[str, Any], tmp_path: Path, ranks: int) -> None:
    found = run_program(ranks, "links", tmp_path, ranks)
    for name in ("uniform loss", "joint loss", "gradient"):
        assert_close(found[name], alone[name])
    # Integers are counted, so these have the same bits.
    for name in ("pool", "filtered", "top"):
        assert found[name] == alone[name]
    assert 0 < found["filtered"][0] < 1
    # As many rows go back as came.
    assert found["bytes"][0] == found["bytes"][1] > 0 == alone["bytes"][0]
