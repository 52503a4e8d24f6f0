"""Flips bits in the unnamed files of an evaluation from disk while it runs: the same result, or one error.

The files of a streamed evaluation have no names. A :class:`Flip` counts the moments before and after every operation on
them, and at one of the moments flips a bit of one file through its descriptor, as a failing disk would.

``PYTHONPATH=tests python tests/support/streamed_flips.py --flips 200`` flips a bit in each of so many predictions.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.layout.vertex_arrays import write_vertex_arrays
from gnnloom.trainer.propagation.column_store import ColumnStore
from gnnloom.trainer.streaming import evaluation
from gnnloom.trainer.streaming.memory import Shape
from gnnloom.trainer.training import predict as prediction
from gnnloom.trainer.training.loop import train
from support.commands import say
from support.consumers import REFUSED, RIGHT, WRONG
from support.lone import LoneCommunicator
from support.problems import problem
from support.sampled import sampled_config, store_for_sampling

#: Operations on the files of a store, and what happens between them.
_OPERATIONS = ("begin", "write_range", "read_range", "end", "check", "mapped", "drop")


def flip_bit(descriptor: int, place: int, bit: int = 0) -> None:
    """Flip one bit of an open file."""
    (found,) = os.pread(descriptor, 1, place)
    os.pwrite(descriptor, bytes([found ^ (1 << bit)]), place)


class Flip:
    """Flips one bit at a moment.

    Attributes:
        moments: that have passed so far.
        done: what was flipped; empty if nothing was.
    """

    def __init__(self, at: int, chosen: random.Random) -> None:
        """Flip a bit at the moment of number ``at``, or the first one after it at which there is a file."""
        self._at, self._chosen = at, chosen
        self._stores = dict[int, ColumnStore]()
        self.moments, self.done = 0, ""

    def __call__(self, store: ColumnStore) -> None:
        """A moment passes."""
        self._stores[id(store)] = store
        self.moments += 1
        if self.done or self.moments <= self._at:
            return
        files = [file for each in self._stores.values() for file in (each._unnamed or {}).values() if file.close.alive]
        if files:
            file = self._chosen.choice(files)
            size = os.fstat(file.descriptor).st_size
            place, bit = self._chosen.randrange(size), self._chosen.randrange(8)
            flip_bit(file.descriptor, place, bit)
            self.done = f"bit {bit} of byte {place} of {size} at moment {self.moments}"


@contextmanager
def flipping(flip: Flip) -> Iterator[None]:
    """Let the moments of all files pass through a flip."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _OPERATIONS:
            patch.setattr(ColumnStore, name, _watched(getattr(ColumnStore, name), flip))
        # Between the file and the result: the predictions are read, and the products computed.
        patch.setattr(prediction, "write_vertex_arrays", _late(write_vertex_arrays, flip))
        yield


def _watched(operation: Callable[..., Any], flip: Flip) -> Callable[..., Any]:
    def watched(store: ColumnStore, *given: Any) -> Any:
        flip(store)
        found = operation(store, *given)
        flip(store)
        return found

    return watched


def _late(write: Callable[..., Any], flip: Flip) -> Callable[..., Any]:
    def late(*given: Any) -> Any:
        for store in list(flip._stores.values()):
            flip(store)
        return write(*given)

    return late


class Predictions:
    """A trained run, and its predictions from disk."""

    def __init__(self, folder: Path, model: str = "sage") -> None:
        """Train, and predict without any damage."""
        self._catalog = Catalog(folder / "catalog")
        store_for_sampling(self._catalog, problem("web", 300, 3000, symmetric=True), 1)
        config = sampled_config(self._catalog, "web", "full", "a", batch_size=1024, model=model, precision="float32")
        train(LoneCommunicator(), config)
        whole = Flip(sys.maxsize, random.Random())
        self.sound, self.moments = self.predicted(whole), whole.moments

    def predicted(self, flip: Flip) -> dict[str, np.ndarray]:
        """The predictions, while a bit flips."""
        shape = Shape(3, on_disk=True, range_rows=64, memory=64 << 20)
        given: dict[str, Any] = {
            "catalog": str(self._catalog.root),
            "dataset": "web",
            "run": "a",
            "threads": 1,
            "embeddings": True,
        }
        with pytest.MonkeyPatch.context() as patch, flipping(flip):
            patch.setattr(evaluation, "settle", lambda *_: shape)
            patch.setattr(prediction, "fits_whole", lambda *_: False)
            # Predictions of this checkpoint would be found.
            Run.open(self._catalog["web"], "a").drop_predictions()
            prediction.predict(LoneCommunicator(), PredictConfig(**given, evaluation_memory=64 << 20))
        predictions = Run.open(self._catalog["web"], "a").predictions()
        return {record.path: predictions.array(record.path).read() for record in predictions.records}

    def answer(self, seed: int, number: int) -> tuple[str, str]:
        """What a flip gives, and what was flipped."""
        chosen = random.Random(f"{seed} {number}")
        flip = Flip(chosen.randrange(self.moments), chosen)
        try:
            found = self.predicted(flip)
        except GnnloomError as error:
            return REFUSED, f"{flip.done}: {error}"
        same = all(np.array_equal(found[name], values) for name, values in self.sound.items())
        return RIGHT if same else WRONG, flip.done


def main() -> None:
    """Flip a bit in each of some predictions from disk."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", type=int, help="repeat one case")
    given = parser.parse_args()
    say(f"seed {given.seed}")
    # Each evaluation announces what it takes.
    logging.getLogger("gnnloom").setLevel(logging.ERROR)
    counts = Counter[str]()
    with tempfile.TemporaryDirectory(prefix="streamed-flips-") as folder:
        predictions = {model: Predictions(Path(folder) / model, model) for model in ("gcn", "sage", "gin")}
        for number in range(given.flips) if given.only is None else [given.only]:
            model = sorted(predictions)[number % len(predictions)]
            answer, what = predictions[model].answer(given.seed, number)
            counts[answer] += 1
            if answer == WRONG or given.only is not None:
                say(f"case {number}: {model}: {answer}, {what}; repeat it with --seed {given.seed} --only {number}")
    for answer in (RIGHT, REFUSED, WRONG):
        say(f"RESULT streamed_flips_{answer} {counts[answer]} {answer}")
    sys.exit(1 if counts[WRONG] else 0)


if __name__ == "__main__":
    main()
