"""Rows of any vertices from the ranks that own them, with and without a cache, on all ranks of this job."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

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
    asked = np.random.default_rng(comm.rank).permutation(NUM_VERTICES)[: 50 * comm.rank]
    with comm.traffic.recording() as counts:
        same = torch.equal(exchange.fetch(asked), table[asked])
    remote = [v for v in asked.tolist() if owner[v] != comm.rank and v not in given["cached"]]
    askers = len({int(owner[v]) for v in remote})
    mine = [figures[kind] for figures in (counts.bytes, counts.messages) for kind in (Kind.ROW_IDS, Kind.ROWS)]
    found = comm.gather_numbers([same, len(remote), askers, *mine])
    return {"same": bool(found[:, 0].all()), "sums": found[:, 1:].sum(0).tolist()}


def main(given: str, result: str) -> None:
    comm = world()
    found = [fetched(comm, case) for case in json.loads(Path(given).read_text())]
    if comm.rank == 0:
        Path(result).write_text(json.dumps(found))


main(*sys.argv[1:])
