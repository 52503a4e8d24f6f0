"""Trains each configuration while a bit flips in a temporary file of the last rank; reports the code of every rank."""

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mpi4py import MPI

from gnnloom.storage.format.memory_map import RecordedArray
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.comm.mpi import MpiCommunicator
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from support.streamed_flips import flip_bit
from support.waiting import sleep_between_looks

write = RecordedArray.write


def write_wrongly(self: RecordedArray, *given: Any) -> None:
    write(self, *given)
    if self._file is not None:
        flip_bit(self._file.descriptor, 1)


def main(given: str, result: str) -> None:
    patch("gnnloom.trainer.training.start.rehearse", lambda *_: None).start()
    sleep_between_looks()
    comm, found = MpiCommunicator(MPI.COMM_WORLD), []
    if comm.rank == comm.size - 1:
        patch.object(RecordedArray, "write", write_wrongly).start()
    for content in json.loads(Path(given).read_text()):
        code = 0
        try:
            train(comm, TrainConfig.of(**content))
        except CollectiveError as error:
            code = error.code
        found.append(comm.gather_numbers([code])[:, 0].tolist())
    if comm.rank == 0:
        Path(result).write_text(json.dumps(found))


main(*sys.argv[1:])
