"""Ranks of which the last one differs in one respect at a time: python -m mpi4py differing.py GIVEN RESULT

GIVEN lists pairs: ``train`` or ``predict``, and the name of a field, or ``gnnloom``, ``torch`` or ``kernels``.
"""

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from mpi4py import MPI

from gnnloom.storage.option import option_fields
from gnnloom.trainer import __main__ as ranks
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.arguments import Job
from gnnloom.trainer.training import alike

WORLD = MPI.COMM_WORLD
SOFTWARE: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "gnnloom": lambda: mock.patch.object(alike, "own_version", return_value="another"),
    "torch": lambda: mock.patch.object(torch, "__version__", "another"),
}


def started(command: str, differs_in: str) -> list[Any]:
    """Exit code, errors and seconds of this rank."""
    config: TrainConfig | PredictConfig = TrainConfig.of(
        catalog="catalog", dataset="web", run="first", ranks=WORLD.size
    )
    if command == "predict":
        config = PredictConfig.of(catalog="catalog", dataset="web", run="first", ranks=WORLD.size)
    differs, restart = WORLD.rank == WORLD.size - 1, False
    if differs and differs_in == "restart":
        restart = True
    elif differs and differs_in not in SOFTWARE:
        # Past all checks, so that every field can have another value whatever it may be combined with.
        part, _, field = option_fields(type(config))[differs_in].path.rpartition(".")
        object.__setattr__(getattr(config, part) if part else config, field, "another")
    errors, begun = io.StringIO(), time.monotonic()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stderr(errors))
        stack.enter_context(mock.patch.object(ranks, "parse_arguments", return_value=Job(config, None, restart)))
        if differs and differs_in in SOFTWARE:
            stack.enter_context(SOFTWARE[differs_in]())
        code = ranks.main([])
    return [code, errors.getvalue(), time.monotonic() - begun]


mine = [started(*case) for case in json.loads(Path(sys.argv[1]).read_text())]
everyones = WORLD.gather(mine)
if everyones is not None:
    Path(sys.argv[2]).write_text(json.dumps(everyones))
