"""Halos: found from segments of rows, numbered by owner, and regrouped by sender for the send lists."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.shards.part_file import PartColumn, write_part_file
from gnnloom.pipeline.shards.row_halo import Halo, find_halo, halo_path
from gnnloom.pipeline.shards.row_routed import RowSegment
from gnnloom.pipeline.shards.row_send_lists import regroup_halos

PART = np.array([0, 2, 1, 0, 2, 1, 1, 0], dtype=np.int32)


def segment(*rows: tuple[int, list[int]]) -> RowSegment:
    """Rows and their columns."""
    columns = [columns for _, columns in rows]
    nonzeros = np.array([len(found) for found in columns])
    return RowSegment(np.array([row for row, _ in rows]), nonzeros, np.array(list(chain(*columns))), None)


@pytest.mark.parametrize("pending", [0, 1 << 20])
def test_a_halo_has_the_columns_of_other_ranks_by_owner_and_id(pending: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnloom.pipeline.shards.row_halo._PENDING_IDS", pending)
    segments = [segment((0, [0, 1, 6]), (3, [2, 3, 4])), segment((7, [1, 2, 7]))]
    halo, own_nonzeros, halo_nonzeros = find_halo(segments, PART, 0, 3)
    assert halo.vertex.tolist() == [2, 6, 1, 4]
    assert halo.offset.tolist() == [0, 0, 2, 4]
    assert (own_nonzeros, halo_nonzeros) == (3, 6)
    assert halo.local_columns(np.array([4, 1, 6, 2, 2])).tolist() == [3, 2, 1, 0, 0]


def test_a_rank_without_foreign_columns_has_an_empty_halo() -> None:
    halo, own_nonzeros, halo_nonzeros = find_halo([segment((0, [0, 7]))], PART, 0, 3)
    assert len(halo.vertex) == 0
    assert halo.offset.tolist() == [0, 0, 0, 0]
    assert (own_nonzeros, halo_nonzeros) == (2, 0)


def test_regrouped_halos_list_what_each_rank_sends_by_receiver(tmp_path: Path) -> None:
    needed = [[1, 2, 6], [0, 4], [3, 5, 7]]
    for rank, vertices in enumerate(needed):
        halo = Halo.of(np.array(vertices), PART[vertices], 3)
        write_part_file(halo_path(tmp_path, "forward", rank), [PartColumn(halo.vertex, halo.offset)])
    regroup_halos(tmp_path, "forward", 3)
    begin = np.load(tmp_path / "send-begin-forward.npy")
    ids = np.load(tmp_path / "send-needed-forward.npy")
    groups = np.split(ids, begin.reshape(-1)[1:])
    expected = [
        [vertex for vertex in needed[receiver] if PART[vertex] == sender]
        for sender in range(3)
        for receiver in range(3)
    ]
    assert [group.tolist() for group in groups] == expected
