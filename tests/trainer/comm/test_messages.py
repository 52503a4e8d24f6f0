"""Messages between three real ranks arrive complete, are counted, and carry a loss whose rows are split."""

from __future__ import annotations

from typing import Any

import pytest

from support.mpi import run_program
from support.tolerance import tolerance


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    results: dict[str, Any] = run_program(3, "messages", tmp_path_factory.mktemp("messages"), {})
    return results


@pytest.mark.slow
def test_messages_beyond_the_largest_count_are_sent_in_segments(found: dict[str, Any]) -> None:
    assert found["segments"]["received"]
    assert found["segments"]["total"] == [3.0 * number for number in range(10)]


def test_tensors_of_all_ranks_are_collected_on_one(found: dict[str, Any]) -> None:
    assert found["collected"] == [False, True, False]


def test_a_rank_does_not_sleep_between_the_pieces_of_a_message(found: dict[str, Any]) -> None:
    # If it slept after the first 0.2 ms, it would do so some hundred times, for 5 ms in the end.
    assert found["long"]["sleeps"] < 20
    assert found["long"]["arrived"] == 1 << 21


def test_a_rank_that_waits_for_another_sleeps(found: dict[str, Any]) -> None:
    # About 0.05; 0.4 to 0.9 if a call that is slow for another reason is mistaken for an arriving message.
    assert {wait for wait, share in found["waiting"].items() if share > 0.25} == set()


def test_messages_and_bytes_are_counted_as_documented(found: dict[str, Any]) -> None:
    # Each of 3 ranks sends 40 bytes in 3 segments; a ring all-reduce of 80 bytes sends 2 * (3 - 1) * 80 in all.
    assert found["segments"]["counts"] == [120, 9, 320]


def test_collectives_move_uneven_blocks_whole_or_in_segments_and_are_counted_as_rings(found: dict[str, Any]) -> None:
    for one in found["collectives"]:
        assert one["same"]
        # 128 bytes, g = 3: g - 1 times in all, in g (g - 1) messages, or in the g - 1 of a chain.
        assert one["counts"] == [256, 6, 256, 6, 256, 2]


def test_reductions_take_the_sum_the_maximum_and_the_minimum(found: dict[str, Any]) -> None:
    assert found["reductions"] == {"SUM": [3.0, -3.0], "MAX": [2.0, 0.0], "MIN": [0.0, -2.0]}


def test_a_group_is_ordered_by_key_and_remembers_the_world_ranks(found: dict[str, Any]) -> None:
    # Ranks 0 and 2, in reverse order: the members, and the bytes that rank 2 sent, by world rank of the receiver.
    assert found["group"] == {"members": [2, 0], "bytes_to": {"0": 8}}


def test_a_group_of_one_rank_waits_for_no_other(found: dict[str, Any]) -> None:
    assert found["alone"] == [1, 1, 1]


def test_cross_entropy_over_split_rows_equals_torch_and_leaves_the_labels(found: dict[str, Any]) -> None:
    assert found["loss"]["loss"][0] == pytest.approx(found["loss"]["loss"][1], rel=tolerance(bits=8))
    assert found["loss"]["gradient"] < tolerance(bits=5)
    assert found["loss"]["predicted"]
    assert found["loss"]["label"] == [0, 6, -1, 3, 2]


def test_binary_cross_entropy_over_split_columns_equals_torch(found: dict[str, Any]) -> None:
    assert found["binary"]["loss"][0] == pytest.approx(found["binary"]["loss"][1], rel=tolerance(bits=8))
    assert found["binary"]["gradient"] < tolerance(bits=5)


def test_ranks_with_cores_of_their_own_use_all_of_them_and_others_share(found: dict[str, Any]) -> None:
    assert found["threads"] == [[8, 8, 8], [2, 2, 2], [1, 3, 3]]
