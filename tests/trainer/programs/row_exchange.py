"""Rows of any vertices from the ranks that own them, and their gradients back, on all ranks of this job."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnloom.storage.matrix.local_numbers import LocalNumbers
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.mpi import world
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.row_exchange import RowExchange
from gnnloom.trainer.place.place import Place

NUM_VERTICES, WIDTH = 200, 3


def fetched(comm: Communicator, given: dict[str, Any]) -> dict[str, Any]:
    """Each rank asks for other vertices: rank 0 for none, in the given order."""
    owner = np.array(given["owner"], np.int32)
    table = torch.from_numpy(np.random.default_rng(0).standard_normal((NUM_VERTICES, WIDTH)))
    own = np.flatnonzero(owner == comm.rank)
    # The rank's rows are in another order than their ids.
    own = np.random.default_rng(comm.rank).permutation(own)
    exchange = RowExchange(comm, LocalNumbers.of(own), table[own].clone(), owner if comm.size > 1 else None, Place())
    exchange.cache(np.array([v for v in given["cached"] if owner[v] != comm.rank], np.int64))
    asked = asked_by(comm.rank)
    with comm.traffic.recording() as counts:
        same = torch.equal(exchange.fetch(asked), table[asked])
    returned, gradients_sent = given_back(comm, exchange, own, asked, owner)
    remote = [v for v in asked.tolist() if owner[v] != comm.rank and v not in given["cached"]]
    askers = len({int(owner[v]) for v in remote})
    mine = [figures[kind] for figures in (counts.bytes, counts.messages) for kind in (Kind.ROW_IDS, Kind.ROWS)]
    found = comm.gather_numbers([same, returned, gradients_sent, len(remote), askers, *mine])
    return {
        "same": bool(found[:, 0].all()),
        "returned": bool(found[:, 1].all()),
        "gradients_sent": found[:, 2].sum(),
        "sums": found[:, 3:].sum(0).tolist(),
    }


def given_back(
    comm: Communicator,
    exchange: RowExchange,
    own: NDArray[np.int64],
    asked: NDArray[np.int64],
    owner: NDArray[np.int32],
) -> tuple[bool, int]:
    """Whether every rank gets, rank after rank, what the ranks give for its rows; and the bytes of gradients sent."""
    gradients = [np.random.default_rng([rank, 1]).standard_normal((50 * rank, WIDTH)) for rank in range(comm.size)]
    with comm.traffic.recording() as counts:
        local, arrived = exchange.give_back(asked, torch.from_numpy(gradients[comm.rank]))
    expected = [np.zeros((0, WIDTH))]
    vertices = [np.zeros(0, np.int64)]
    for rank, gradient in enumerate(gradients):
        theirs = asked_by(rank)
        mine = owner[theirs] == comm.rank
        vertices.append(theirs[mine])
        expected.append(gradient[mine])
    same = np.array_equal(own[local.numpy()], np.concatenate(vertices))
    same = same and np.array_equal(arrived.numpy(), np.concatenate(expected))
    remote = int((owner[asked] != comm.rank).sum())
    assert counts.bytes[Kind.ROW_GRADIENTS] == 8 * WIDTH * remote
    return same, counts.bytes[Kind.ROW_GRADIENTS]


def asked_by(rank: int) -> NDArray[np.int64]:
    """The vertices that a rank asks for: rank 0 none."""
    return np.random.default_rng(rank).permutation(NUM_VERTICES)[: 50 * rank]


def main(given: str, result: str) -> None:
    comm = world()
    found = [fetched(comm, case) for case in json.loads(Path(given).read_text())]
    if comm.rank == 0:
        Path(result).write_text(json.dumps(found))


main(*sys.argv[1:])
