"""Evaluates models with everything in memory and from disk, each on as many of this job's ranks as it asks for."""

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from mpi4py import MPI

from gnnloom.storage import Catalog
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.mpi import MpiCommunicator
from gnnloom.trainer.config.continuation import OpenedRun
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.passes.evaluation import streamed_outputs
from gnnloom.trainer.passes.memory import Shape
from gnnloom.trainer.place.global_generator import seeded
from gnnloom.trainer.training.session import open_session
from support.waiting import sleep_between_looks


def measure(comm: Communicator, case: dict[str, Any]) -> dict[str, Any]:
    config = TrainConfig.of(**case["config"])
    dataset = Catalog(config.data.catalog).dataset(config.data.dataset)
    opened = OpenedRun.open(config, dataset, Run(dataset.run_path(config.run_name)), comm.rank, comm.size)
    session = open_session(comm, opened, 1)
    model = session.model.eval()
    with torch.no_grad(), seeded(5) as generator:
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.add_(torch.rand(tensor.shape, generator=generator, dtype=torch.float64), alpha=0.1)
    with torch.no_grad():
        hidden = model.embed(session.take_inputs())
        embedding, scores = model.as_sums(hidden.value.clone()), model.classify(hidden)
    source = session.streamed_source(config.data.feature_norm, 0)
    shape = Shape(**case["shape"], memory=1 << 20)
    with torch.no_grad(), patch("gnnloom.trainer.passes.evaluation.settle", lambda *_: shape):
        found, report = streamed_outputs(model, source, embeds=True)
    pairs = {"scores": (found.scores, scores)}
    if found.embedding is not None:
        pairs["embedding"] = found.embedding, embedding
    differences = {name: float((a - b).abs().max()) if a.numel() else 0.0 for name, (a, b) in pairs.items()}
    largest = {name: float(b.abs().max()) if b.numel() else 0.0 for name, (_, b) in pairs.items()}
    every = comm.gather_numbers([differences[name] for name in pairs] + [largest[name] for name in pairs]).max(0)
    return {"figures": every.tolist(), "names": list(pairs), "report": report.to_json()}


def main(given: str, result: str) -> None:
    sleep_between_looks()
    world = MpiCommunicator(MPI.COMM_WORLD)
    cases = json.loads(Path(given).read_text())
    sizes = sorted({case["config"]["ranks"] for case in cases})
    groups = {size: world.group(int(world.rank < size), world.rank) for size in sizes}
    results = []
    for case in cases:
        size = case["config"]["ranks"]
        results.append(measure(groups[size], case) if world.rank < size else {})
        world.barrier()
    if world.rank == 0:
        Path(result).write_text(json.dumps(results))


main(*sys.argv[1:])
