"""Flips bits in the temporary files without names while they are used: the same result, or one error.

Evaluations from disk, features from disk, outputs layer by layer and copies of what is read at random are in files
without a name. A :class:`Flip` counts the moments before and after every operation on them, and at one of the
moments flips a bit of one file through its descriptor, as a failing disk would.

``PYTHONPATH=tests python tests/support/streamed_flips.py --flips 200`` flips a bit in each of 200 runs of the cases.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import sys
import tempfile
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.memory_map import RecordedArray, UnnamedFile
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.layout.vertex_arrays import write_vertex_arrays
from gnnloom.trainer.models.networks.model import Model
from gnnloom.trainer.modes.epochs import rows
from gnnloom.trainer.passes import edge_inference, evaluation, layerwise
from gnnloom.trainer.passes.memory import Shape
from gnnloom.trainer.propagation.column_store import ColumnStore
from gnnloom.trainer.training import best_targets
from gnnloom.trainer.training import predict as prediction
from gnnloom.trainer.training.loop import Training, train
from gnnloom.trainer.training.pair_scores import PairScorer
from gnnloom.workflows.interop.export import VertexIds, edge_table
from support.commands import say
from support.consumers import REFUSED, RIGHT, WRONG
from support.lone import LoneCommunicator
from support.pair_runs import TRAIN, call, drawn_edges, store_named
from support.problems import problem
from support.sampled import sampled_config, store_for_sampling

Arrays = dict[str, np.ndarray]

#: What happens to the files, or between such operations, by the class that does it.
_OPERATIONS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (ColumnStore, ("begin", "write_range", "read_range", "end", "check", "mapped", "drop")),
    (RecordedArray, ("write", "check")),
    (Model, ("forward",)),
    (Training, ("_train_epoch", "_measure", "_check_files", "_write_line")),
    (rows.RowsMode, ("_taken",)),
    (layerwise._Layer, ("_batch",)),
    (edge_inference._EdgeLayer, ("next",)),
    (VertexIds, ("columns", "check")),
    (PairScorer, ("_scores", "top")),
)


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
        self._files = list[weakref.ref[UnnamedFile]]()
        self.moments, self.done = 0, ""

    def add(self, file: UnnamedFile) -> None:
        """From now on, this file may be hit."""
        self._files.append(weakref.ref(file))

    def __call__(self) -> None:
        """A moment passes."""
        self.moments += 1
        if self.done or self.moments <= self._at:
            return
        files = [file for each in self._files if (file := each()) is not None and file.close.alive]
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
        make = UnnamedFile.__init__

        def made(file: UnnamedFile, *given: Any) -> None:
            make(file, *given)
            flip.add(file)

        patch.setattr(UnnamedFile, "__init__", made)
        for owner, names in _OPERATIONS:
            for name in names:
                patch.setattr(owner, name, _watched(getattr(owner, name), flip))
        # Between the file and the result: the predictions are read, and the products computed.
        patch.setattr(prediction, "write_vertex_arrays", _watched(write_vertex_arrays, flip))
        yield


def _watched(operation: Callable[..., Any], flip: Flip) -> Callable[..., Any]:
    def watched(*given: Any, **named: Any) -> Any:
        flip()
        found = operation(*given, **named)
        flip()
        return found

    return watched


class Case:
    """Something that uses files without names, and its result without any damage.

    Attributes:
        sound: arrays of the result by name.
        moments: that pass.
    """

    def __init__(self, folder: Path) -> None:
        self.catalog = Catalog(folder / "catalog")
        store_for_sampling(self.catalog, problem("web", 300, 3000, symmetric=True), 1)
        self.prepare()
        whole = Flip(sys.maxsize, random.Random())
        self.sound, self.moments = self.result(whole), whole.moments

    def prepare(self) -> None:
        """Make what the case reads."""

    def result(self, flip: Flip) -> Arrays:
        """The arrays of the result, while a bit flips."""
        raise NotImplementedError

    def kept(self) -> Arrays:
        """What is left of a result that was refused: a part of the whole one."""
        return {}

    def answer(self, seed: int, number: int) -> tuple[str, str]:
        """What a flip gives, and what was flipped."""
        chosen = random.Random(f"{seed} {number}")
        flip = Flip(chosen.randrange(self.moments), chosen)
        try:
            found = self.result(flip)
        except GnnloomError as error:
            kept = self.kept()
            same = all(np.array_equal(values, self.sound[name][: len(values)]) for name, values in kept.items())
            return REFUSED if same else WRONG, f"{flip.done}: {error}"
        same = all(np.array_equal(found[name], values) for name, values in self.sound.items())
        return RIGHT if same else WRONG, flip.done


class Predictions(Case):
    """Predictions of a trained run from disk, or of rows."""

    def __init__(self, folder: Path, model: str = "sage", mode: str = "full") -> None:
        self._model, self._mode = model, mode
        super().__init__(folder)

    def prepare(self) -> None:
        options = {"batch_size": 1024, "model": self._model, "precision": "float32"}
        train(LoneCommunicator(), sampled_config(self.catalog, "web", self._mode, "a", **options))

    def result(self, flip: Flip) -> Arrays:
        shape = Shape(3, on_disk=True, range_rows=64, memory=64 << 20)
        given: dict[str, Any] = {
            "catalog": str(self.catalog.root),
            "dataset": "web",
            "run": "a",
            "threads": 1,
            "embeddings": True,
        }
        with pytest.MonkeyPatch.context() as patch, flipping(flip):
            patch.setattr(evaluation, "settle", lambda *_: shape)
            patch.setattr(prediction, "fits_whole", lambda *_: False)
            # Predictions of this checkpoint would be found.
            Run.open(self.catalog["web"], "a").drop_predictions()
            prediction.predict(LoneCommunicator(), PredictConfig.of(**given, evaluation_memory=64 << 20))
        predictions = Run.open(self.catalog["web"], "a").predictions()
        return {record.path: predictions.array(record.path).read() for record in predictions.records}


class Trainings(Case):
    """The metrics and the parameters of runs that read files."""

    def __init__(self, folder: Path, mode: str, **options: Any) -> None:
        self._mode, self._options = mode, options
        super().__init__(folder)

    def result(self, flip: Flip) -> Arrays:
        shape = Shape(3, on_disk=True, range_rows=64, memory=64 << 20)
        shutil.rmtree(self.catalog["web"].run_path("a"), ignore_errors=True)
        given: dict[str, Any] = {"precision": "float32", "batch_size": 50 if self._mode != "full" else 1024}
        config = sampled_config(
            self.catalog, "web", self._mode, "a", **given | {"epochs": 2, "eval_every": 1} | self._options
        )
        with pytest.MonkeyPatch.context() as patch, flipping(flip):
            patch.setattr(evaluation, "settle", lambda *_: shape)
            train(LoneCommunicator(), config)
        return self.kept() | self._parameters()

    def kept(self) -> Arrays:
        run = Run(self.catalog["web"].run_path("a"))
        lines = run.metrics() if run.exists else []
        names = ("loss", "train_accuracy", "val_accuracy", "test_accuracy")
        return {name: np.array([line[name] for line in lines], np.float64) for name in names}

    def _parameters(self) -> Arrays:
        checkpoint = read_checkpoint(Run.open(self.catalog["web"], "a").checkpoints)
        return {name: np.asarray(array) for name, array in checkpoint.arrays.items()}


class Exports(Case):
    """Edges with the names of their vertices, and scores of pairs."""

    def prepare(self) -> None:
        folder = self.catalog.root
        store_named(folder, folder)
        call(folder, "train", "named/a", "--task", "link", "--ranks", "1", "--threads", "1", *TRAIN)
        call(folder, "predict", "named/a")

    def result(self, flip: Flip) -> Arrays:
        dataset, pairs = self.catalog["named"], drawn_edges(2)
        run, whole = Run.open(dataset, "a"), dataset.graph()
        with flipping(flip):
            edges = list(edge_table(whole).pieces())
            with PairScorer.open(dataset, run, threads=1) as scorer:
                scores = scorer.scores(pairs)
                best = list(best_targets.best_targets(scorer, whole, None, 3))
        columns = [np.concatenate(each) for each in (*zip(*edges, strict=True), *zip(*best, strict=True))]
        return {"scores": scores, **{str(number): column for number, column in enumerate(columns)}}


CASES: MappingProxyType[str, Callable[[Path], Case]] = MappingProxyType({
    "gcn predicts": lambda folder: Predictions(folder, "gcn"),
    "sage predicts": lambda folder: Predictions(folder, "sage"),
    "gin predicts": lambda folder: Predictions(folder, "gin"),
    "rows predict": lambda folder: Predictions(folder, "mlp", "rows"),
    "product in a file": lambda folder: Trainings(folder, "full", inputs="disk"),
    "features in a file": lambda folder: Trainings(folder, "full", inputs="disk", product_order="transform-first"),
    "both in files": lambda folder: Trainings(folder, "full", inputs="disk", model="sage"),
    "half precision": lambda folder: Trainings(folder, "full", inputs="disk", precision="bf16"),
    "rows": lambda folder: Trainings(folder, "rows", model="mlp"),
    "batches from disk": lambda folder: Trainings(folder, "neighbor", inputs="disk", fanout=(3, 3)),
    "layer by layer": lambda folder: Trainings(folder, "neighbor", inputs="disk", fanout=(3, 3), model="gat"),
    "module on edges": lambda folder: Trainings(
        folder, "neighbor", fanout=(3, 3), hidden=(6,), model="torch_geometric.nn:GraphSAGE"
    ),
    "names and pairs": Exports,
})  # fmt: skip


def main() -> None:
    """Flip a bit in each of some runs of the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", type=int, help="repeat one case")
    given = parser.parse_args()
    say(f"seed {given.seed}")
    counts = Counter[str]()
    with tempfile.TemporaryDirectory(prefix="streamed-flips-") as folder:
        cases = dict[str, Case]()
        for number in range(given.flips) if given.only is None else [given.only]:
            name = list(CASES)[number % len(CASES)]
            if name not in cases:
                cases[name] = CASES[name](Path(folder, name))
                # Each evaluation announces what it takes, and commands set the level.
                logging.getLogger("gnnloom").setLevel(logging.ERROR)
            answer, what = cases[name].answer(given.seed, number)
            counts[answer] += 1
            counts[f"{name}: {answer}"] += 1
            if answer == WRONG or given.only is not None:
                say(f"case {number}: {name}: {answer}, {what}; repeat it with --seed {given.seed} --only {number}")
    for name in cases:
        say(f"{name}: " + ", ".join(f"{counts[f'{name}: {answer}']} {answer}" for answer in (RIGHT, REFUSED, WRONG)))
    for answer in (RIGHT, REFUSED, WRONG):
        say(f"RESULT streamed_flips_{answer} {counts[answer]} {answer}")
    sys.exit(1 if counts[WRONG] else 0)


if __name__ == "__main__":
    main()
