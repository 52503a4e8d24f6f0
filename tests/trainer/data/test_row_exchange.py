"""Any rows of any ranks arrive in the order asked for; cached ones cost no message; gradients take the way back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.mpi import run_program

VERTICES, WIDTH = 200, 3


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_rows_of_all_ranks_arrive_in_order_and_cached_ones_cost_no_message(tmp_path: Path, ranks: int) -> None:
    owner = np.random.default_rng(1).integers(0, ranks, VERTICES)
    # In the second case, the last rank owns nothing.
    crowded = np.minimum(owner, max(ranks - 2, 0))
    cases = [
        {"owner": each.tolist(), "cached": cached}
        for each in (owner, crowded)
        for cached in ([], list(range(0, VERTICES, 2)))
    ]
    results = run_program(ranks, "row_exchange", tmp_path, cases)
    for found in results:
        assert found["same"]
        # Gradients go to the owners of all vertices, also of cached ones.
        assert found["returned"]
        assert (found["gradients_sent"] > 0) == (ranks > 1)
        remote, askers, id_bytes, row_bytes, id_messages, row_messages = found["sums"]
        assert (remote > 0) == (ranks > 1)
        # Every rank tells every other one how many ids follow.
        pairs = ranks * (ranks - 1)
        assert (id_bytes, row_bytes) == (8 * (remote + pairs), 8 * WIDTH * remote)
        assert (id_messages, row_messages) == (askers + pairs, askers)
    assert results[1]["sums"][0] < results[0]["sums"][0] or ranks == 1
