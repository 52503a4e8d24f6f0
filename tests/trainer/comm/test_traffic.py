"""Closed forms of what the ranks of a ring send, summed over the ranks, and how records nest."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnloom.trainer.comm.exchange import BlockExchange
from gnnloom.trainer.comm.traffic import SPMM, Kind, Ring, Traffic, TrafficCounts
from gnnloom.trainer.comm.unconnected import UnconnectedRank
from gnnloom.trainer.place.place import Place

BLOCKS = {2: [24, 8], 3: [24, 0, 40], 5: [8, 8, 16, 0, 48]}


class Meeting:
    """Counts how often the ranks met."""

    def __init__(self) -> None:
        self.times = 0

    def barrier(self) -> None:
        self.times += 1


def total(counts: list[TrafficCounts]) -> tuple[int, int]:
    """Bytes and messages of all ranks."""
    return sum(count.bytes.total() for count in counts), sum(count.messages.total() for count in counts)


def rings(size: int) -> tuple[list[Ring], list[TrafficCounts]]:
    """The ring of every rank, and what each will have counted."""
    records = [Traffic() for _ in range(size)]
    return [Ring(record, rank, range(size)) for rank, record in enumerate(records)], [one.counts for one in records]


@pytest.mark.parametrize("size", BLOCKS)
def test_all_ranks_together_send_what_the_table_says(size: int) -> None:
    whole = sum(BLOCKS[size])
    ranks, counts = rings(size)
    for ring in ranks:
        ring.count_all_gather(Kind.WEIGHT, BLOCKS[size])
    assert total(counts) == ((size - 1) * whole, size * (size - 1))
    ranks, counts = rings(size)
    for ring in ranks:
        ring.count_reduce_scatter(Kind.WEIGHT, BLOCKS[size])
    assert total(counts) == ((size - 1) * whole, size * (size - 1))
    ranks, counts = rings(size)
    for ring in ranks:
        ring.count_all_reduce(Kind.GRADIENT, 13, 8)
    assert total(counts) == (2 * (size - 1) * 13 * 8, 2 * size * (size - 1))
    for root in range(size):
        ranks, counts = rings(size)
        for ring in ranks:
            ring.count_broadcast(Kind.ADJACENCY, 100, root)
        assert total(counts) == ((size - 1) * 100, size - 1)


def test_collectives_count_as_messages_to_the_next_member_by_its_world_rank() -> None:
    record = Traffic()
    Ring(record, 2, (4, 9, 7)).count_broadcast(Kind.LOSS, 16, 1)
    assert dict(record.counts.bytes_to) == {4: 16}


def test_a_recording_is_separate_from_what_surrounds_it() -> None:
    traffic = Traffic()
    traffic.counts.add(Kind.LOSS, 8, 1, 0)
    with traffic.recording() as inner:
        traffic.counts.add(Kind.LOSS, 100, 2, 1)
    traffic.counts.add(Kind.LOSS, 8, 1, 0)
    assert (inner.bytes[Kind.LOSS], inner.messages[Kind.LOSS]) == (100, 2)
    assert (traffic.counts.bytes[Kind.LOSS], traffic.counts.messages[Kind.LOSS]) == (16, 2)


def test_ranks_meet_and_times_are_taken_only_if_profiled() -> None:
    traffic, meeting = Traffic(), Meeting()
    with traffic.timing(SPMM), traffic.timing(Kind.WEIGHT, meeting):
        pass
    assert (traffic.counts.seconds, meeting.times) == ({}, 0)
    traffic.profiled = True
    with traffic.timing(SPMM), traffic.timing(Kind.WEIGHT, meeting):
        pass
    assert set(traffic.counts.seconds) == {"spmm", "waiting", "weight"}
    assert meeting.times == 1
    # Without a profile, ranks wait for the late one in the transfer, which counts as exposed.
    assert traffic.counts.exposed == traffic.counts.seconds["waiting"] > 0


def test_a_rank_of_a_stated_size_gets_what_it_sends() -> None:
    comm, place = UnconnectedRank(1, 3), Place()
    counts = np.array([2, 0, 1], np.int64)
    blocks = BlockExchange(comm, counts, place, Kind.SETUP)
    np.testing.assert_array_equal(blocks.arriving, counts)
    np.testing.assert_array_equal(blocks.forth(np.arange(3)), np.arange(3))
    # Nothing was sent to the rank from which this one waits for a tensor.
    kept = torch.ones(2)
    comm.wait([*comm.send(torch.zeros(2), 0, Kind.SETUP), *comm.receive(kept, 2)])
    assert kept.tolist() == [1, 1]
