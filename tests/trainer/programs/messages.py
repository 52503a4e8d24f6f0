"""Exchanges in segments, collectives, and a loss whose rows are split over the ranks, on 3 ranks."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from mpi4py import MPI
from torch import Tensor

from gnnloom.trainer.comm.communicator import Reduction
from gnnloom.trainer.comm.exchange import collect, exchange
from gnnloom.trainer.comm.mpi import MAX_COUNT, MpiCommunicator, world
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.by_element import MaskedBinaryCrossEntropy
from gnnloom.trainer.tasks.objectives.classes import MaskedCrossEntropy, predicted_class


def exchange_in_segments() -> dict[str, Any]:
    """10 elements to the next rank, 3 to this one and none to the third; at most 4 in one call. An all-reduce of 10."""
    comm = MpiCommunicator(MPI.COMM_WORLD, max_count=4)
    numbers, before, after = torch.arange(10.0), (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    sends, receives = [torch.empty(0)] * comm.size, [torch.empty(0)] * comm.size
    sends[after], receives[before] = numbers + comm.rank, torch.empty(10)
    sends[comm.rank], receives[comm.rank] = numbers[:3], torch.empty(3)
    with comm.traffic.recording() as counts:
        exchange(comm, sends, receives, Kind.HALO_FORWARD)
        total = torch.arange(10, dtype=torch.float64)
        comm.all_reduce(total, Kind.GRADIENT)
    same = torch.equal(receives[before], numbers + before) and torch.equal(receives[comm.rank], numbers[:3])
    figures = [counts.bytes[Kind.HALO_FORWARD], counts.messages[Kind.HALO_FORWARD], counts.bytes[Kind.GRADIENT]]
    return {
        "received": bool(comm.gather_numbers([same]).all()),
        "total": total.tolist(),
        "counts": comm.gather_numbers(figures).sum(0).tolist(),
    }


def collected() -> list[bool]:
    """Whether each rank gets the pairs of numbers that rank 1 collects; rank 0 sends none."""
    comm = world()
    mine, shapes = torch.full((comm.rank, 2), float(comm.rank)), [[(rank, 2)] for rank in range(comm.size)]
    found = {rank: rows.tolist() for rank, (rows,) in collect(comm, [mine], shapes, Place(), 1, Kind.CHECKPOINT)}
    return [bool(each) for each in comm.gather_numbers([found == {0: [], 2: [[2, 2], [2, 2]]}])[:, 0]]


def sleeps_of_a_long_message() -> dict[str, int]:
    """How often a rank sleeps while it sends 8 MB to itself, in about 500 pieces of 16 KB."""
    comm = world()
    sent, received = torch.ones(1 << 21), torch.zeros(1 << 21)
    with mock.patch("gnnloom.trainer.comm.mpi.time.sleep") as sleep:
        comm.wait(comm.receive(received, comm.rank) + comm.send(sent, comm.rank, Kind.SETUP))
    return {"sleeps": sleep.call_count, "arrived": int(received.sum())}


def collectives(max_count: int) -> dict[str, Any]:
    """Blocks of 3, 0 and 5 rows: gathered, summed and scattered, broadcast; and how each is counted."""
    comm = MpiCommunicator(MPI.COMM_WORLD, max_count=max_count)
    sizes = [3, 0, 5]
    whole = torch.arange(16, dtype=torch.float64).view(8, 2)
    mine = torch.split(whole, sizes)[comm.rank]
    counts = []
    with comm.traffic.recording() as gathered:
        same = [torch.equal(comm.all_gather(mine.clone(), sizes, Kind.WEIGHT), whole)]
    with comm.traffic.recording() as scattered:
        same.append(torch.equal(comm.reduce_scatter(whole * (comm.rank + 1), sizes, Kind.WEIGHT), mine * 6))
    with comm.traffic.recording() as spread:
        sent = whole.clone() if comm.rank == 1 else torch.zeros_like(whole)
        comm.broadcast(sent, 1, Kind.WEIGHT)
        same.append(torch.equal(sent, whole))
    for record in (gathered, scattered, spread):
        counts += [record.bytes[Kind.WEIGHT], record.messages[Kind.WEIGHT]]
    return {
        "same": bool(comm.gather_numbers([all(same)]).all()),
        "counts": comm.gather_numbers(counts).sum(0).tolist(),
    }


def reductions() -> dict[str, list[float]]:
    """Each reduction of (rank, -rank)."""
    comm, found = world(), {}
    for operation in Reduction:
        tensor = torch.tensor([comm.rank, -comm.rank], dtype=torch.float64)
        comm.all_reduce(tensor, Kind.METRICS, operation)
        found[operation.name] = tensor.tolist()
    return found


def group_in_reverse() -> dict[str, Any]:
    """Ranks 0 and 2 as a group in reverse order; its first rank, 2, sends 8 bytes to the other."""
    comm = world()
    group = comm.group(comm.rank % 2, -comm.rank)
    with comm.traffic.recording() as counts:
        if comm.rank == 2:
            group.wait(group.send(torch.zeros(1, dtype=torch.float64), 1, Kind.SETUP))
        elif comm.rank == 0:
            group.wait(group.receive(torch.empty(1, dtype=torch.float64), 0))
    sent = comm.gather_numbers([counts.bytes_to[rank] for rank in range(comm.size)])[2].astype(int)
    return {"members": list(group.members), "bytes_to": {rank: int(count) for rank, count in enumerate(sent) if count}}


def group_of_one() -> list[int]:
    """A group that only rank 1 forms: its member, its size, and the 1 that it sends itself."""
    comm, found = world(), [0.0, 0.0, 0.0]
    if comm.rank == 1:
        group = comm.group(7, 0, 1)
        got = torch.empty(1)
        group.wait([*group.receive(got, 0), *group.send(torch.ones(1), 0, Kind.SETUP)])
        found = [*group.members, group.size, got.item()]
    return [int(number) for number in comm.gather_numbers(found)[1]]


def work_of_waiting() -> dict[str, float]:
    """Processor time of rank 0 while it waits for rank 2, as a share of the time: the least of three waits."""
    comm, numbers, many = world(), torch.ones(4), torch.ones(1 << 18)

    def message(tensor: Tensor) -> None:
        ends = {0: lambda: comm.receive(tensor, 2), 2: lambda: comm.send(tensor, 0, Kind.SETUP)}
        comm.wait(ends.get(comm.rank, list)())

    def least(wait: Callable[[], object]) -> float:
        shares = []
        for _ in range(3):
            comm.barrier()
            if comm.rank == 2:
                time.sleep(0.2)
            started, used = time.perf_counter(), time.process_time()
            wait()
            shares.append((time.process_time() - used) / (time.perf_counter() - started))
        return min(shares)

    short: dict[str, Callable[[], object]] = {
        "barrier": comm.barrier,
        "all-gather": lambda: comm.gather_numbers([1.0]),
        "all-reduce": lambda: comm.all_reduce(numbers, Kind.METRICS),
        "message": lambda: message(numbers),
    }
    # Every call takes longer than the one before, as if it copied a piece of a message.
    with mock.patch("gnnloom.trainer.comm.mpi._Calls._seconds", mock.Mock(side_effect=itertools.count())):
        found = {name: least(wait) for name, wait in short.items()}
    return {**found, "long message": least(lambda: message(many))}


def split_loss() -> dict[str, Any]:
    """7 classes split over 3 ranks, every rank with all rows."""
    comm = world()
    layout = Layout(
        ProcessGrid(comm, {"row": 1, "column": comm.size}, Place(torch.float64)), np.arange(5), ("row",), ("column",)
    )
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 7, generator=generator, dtype=torch.float64) * 50
    label, mask = torch.tensor([0, 6, -1, 3, 2]), torch.tensor([True, True, False, True, False])
    mine = scores[:, layout.columns(7)].clone().requires_grad_()
    loss = MaskedCrossEntropy(layout, label, mask, 7)
    contribution = loss(mine)
    contribution.backward()  # type: ignore[no-untyped-call]
    whole = scores.clone().requires_grad_()
    expected = torch.nn.functional.cross_entropy(whole[mask], label[mask])
    expected.backward()  # type: ignore[no-untyped-call]
    total = comm.gather_numbers([float(contribution)]).sum()
    assert mine.grad is not None
    assert whole.grad is not None
    difference = (mine.grad - whole.grad[:, layout.columns(7)]).abs().max()
    return {
        "loss": [float(total), float(expected)],
        "gradient": comm.gather_numbers([float(difference)]).max(),
        "predicted": bool(torch.equal(predicted_class(layout, scores[:, layout.columns(7)], 7), scores.argmax(1))),
        "label": label.tolist(),
    }


def split_binary_loss() -> dict[str, Any]:
    """7 columns of zeros and ones split over 3 ranks, with scores whose exponentials overflow."""
    comm = world()
    layout = Layout(
        ProcessGrid(comm, {"row": 1, "column": comm.size}, Place(torch.float64)), np.arange(5), ("row",), ("column",)
    )
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 7, generator=generator, dtype=torch.float64) * 1000
    label, mask = torch.randint(0, 2, (5, 7), generator=generator), torch.tensor([True, True, False, True, False])
    mine = scores[:, layout.columns(7)].clone().requires_grad_()
    contribution = MaskedBinaryCrossEntropy(layout, label.to(torch.int8), mask, 7)(mine)
    contribution.backward()  # type: ignore[no-untyped-call]
    whole = scores.clone().requires_grad_()
    expected = torch.nn.functional.binary_cross_entropy_with_logits(whole[mask], label[mask].double())
    expected.backward()  # type: ignore[no-untyped-call]
    assert mine.grad is not None
    assert whole.grad is not None
    difference = (mine.grad - whole.grad[:, layout.columns(7)]).abs().max()
    return {
        "loss": [float(comm.gather_numbers([float(contribution)]).sum()), float(expected)],
        "gradient": comm.gather_numbers([float(difference)]).max(),
    }


def threads_by_cores() -> list[list[float]]:
    """Threads of every rank: bound to 8 cores of its own, sharing 7 cores, and rank 0 bound to fewer than others."""
    found = []
    first = 100 * world().rank
    for cores in (range(first, first + 8), range(7), range(first, first + (1 if first == 0 else 4))):
        comm = world()
        with mock.patch("os.sched_getaffinity", return_value=set(cores)):
            found.append(comm.gather_numbers([comm.this_machine().threads])[:, 0].tolist())
    return found


results = {
    "threads": threads_by_cores(),
    "segments": exchange_in_segments(),
    "collected": collected(),
    "long": sleeps_of_a_long_message(),
    "loss": split_loss(),
    "binary": split_binary_loss(),
    "reductions": reductions(),
    "group": group_in_reverse(),
    "alone": group_of_one(),
    "waiting": work_of_waiting(),
    "collectives": [collectives(4), collectives(MAX_COUNT)],
}
if world().rank == 0:
    Path(sys.argv[2]).write_text(json.dumps(results))
