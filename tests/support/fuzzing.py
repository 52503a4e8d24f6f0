"""Reads damaged copies of valid files of every kind; only a result or one of gnnloom's errors is allowed.

``make fuzz`` (``PYTHONPATH=tests python tests/support/fuzzing.py --seconds 180``) fuzzes every reader for so many
seconds each, prints what it found, and ends with ``RESULT`` lines. What it finds becomes a test. Where atheris is
installed (``pip install atheris``), changes that reach new code are kept and changed further.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.sources.binary.torch_arrays import PickledArray, torch_arrays
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.sources.reading.files import open_file
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.errors import CorruptError, GnnloomError, InputError
from gnnloom.storage.format.schema import LINK_SPLITS
from gnnloom.storage.runs.run import Run
from gnnloom.storage.upkeep.archive import _write_members, export_dataset, files_of
from gnnloom.storage.upkeep.archive_import import import_dataset
from gnnloom.trainer.config.continuation import configure
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.stored_predictions import look_up
from gnnloom.trainer.config.train_config import TrainConfig, command_line
from gnnloom.workflows.recipe.bundled import RECIPES
from gnnloom.workflows.recipe.read import read_recipe
from support.edge_formats import FORMATS, write_pyg_deflated
from support.graphs import random_adjacency, store_graph
from support.links import pairs_of, store_links
from support.propagated import reference_steps, store_propagated
from support.resealing import change_values, seal_again
from support.small_catalogs import store_run, store_small_dataset
from support.strangers import HOSTILE_NAMES
from support.typed_inputs import typed_inputs

U, V = np.array([0, 1, 2, 3, 4, 5]), np.array([1, 2, 3, 4, 5, 0])
#: Longest time that a reader may take for a tiny file, in seconds; on a busy machine.
SLOW_SECONDS = 20.0
#: Longest time for one input before it counts as a hang, in seconds; on a busy machine.
HANG_SECONDS = 120
#: Share of the inputs whose checksums fit the damage, so that readers go on to what is behind them.
SEALED = 0.5
#: Most by which one tiny input may raise the peak of the resident memory, in bytes.
MOST_MEMORY = 512 << 20


@dataclass(frozen=True)
class Target:
    """A reader and its valid input.

    Attributes:
        make: writes the input into an empty folder.
        read: reads all of it.
        refused: whether the reader refuses even the undamaged input.
    """

    name: str
    make: Callable[[Path], object]
    read: Callable[[Path], object]
    refused: bool = False


@dataclass
class Outcome:
    """What fuzzing one target found: numbers of inputs, of those that were refused, and the failures."""

    inputs: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)


def _read_edges(name: str, options: dict[str, Any], where: Callable[[Path], str]) -> Callable[[Path], object]:
    def read(folder: Path) -> int:
        source = open_edges(name, [where(folder)], options)
        source.num_vertices()
        return sum(len(chunk.source) for span in source.ranges() for chunk in source.read(span))

    return read


def _edge_targets() -> Iterator[Target]:
    written = {key: (name, options, write) for key, (name, options, _, _, write) in FORMATS.items()}
    written["pyg deflated"] = ("pyg", {}, write_pyg_deflated)
    for key, (name, options, write) in written.items():
        where: dict[str, str] = {}

        def make(folder: Path, write: Any = write, where: dict[str, str] = where) -> None:
            path = write(folder, U, V, None, 8)
            where["path"] = str(Path(path).relative_to(folder))

        read = _read_edges(name, options, lambda folder, w=where: str(folder / w["path"]))  # type: ignore[misc]
        yield Target(key, make, read, refused=write is write_pyg_deflated)
    texts = {
        "text": ("snap", "edges.txt", "# graph\n0 1\n1 2\n2\t3\n30 4\n"),
        "csv": ("snap", "edges.csv", "0,1\n1,2\n2,3\n"),
        "metis": ("metis", "edges.graph", "% comment\n4 3\n2\n1 3\n2 4\n3\n"),
        "dimacs": ("dimacs", "edges.gr", "c comment\np sp 4 3\na 1 2 5\na 2 3 1\na 3 4 2\n"),
        "mtx text": ("mtx", "edges.mtx", "%%MatrixMarket matrix coordinate pattern general\n4 4 3\n1 2\n2 3\n3 4\n"),
    }
    for key, (name, file, text) in texts.items():
        yield Target(
            key,
            lambda folder, f=file, t=text: (folder / f).write_text(t),  # type: ignore[misc]
            _read_edges(name, {}, lambda folder, f=file: str(folder / f)),  # type: ignore[misc]
        )
    yield Target(
        "npy",
        lambda folder: np.save(folder / "edges.npy", np.stack([U, V], axis=1)),
        _read_edges("npy", {}, lambda folder: str(folder / "edges.npy")),
    )
    matrix = scipy.sparse.csr_array((np.ones(6), (U, V)), shape=(8, 8))
    yield Target(
        "npz",
        lambda folder: scipy.sparse.save_npz(folder / "edges.npz", matrix),
        _read_edges("npz", {}, lambda folder: str(folder / "edges.npz")),
    )


def _import(folder: Path) -> None:
    target = folder / "into"
    import_dataset(Catalog(target), folder / "web.tar")


def _export(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as other:
        export_dataset(store_small_dataset(Catalog(Path(other))), folder / "web.tar")


def _draw_links(folder: Path) -> None:
    dataset = Catalog(folder).create("web")
    adjacency = random_adjacency(30, 90, 1, symmetric=True)
    graph = store_graph(dataset, adjacency, symmetric=True, num_blocks=2)
    draw_links(dataset, graph, DrawOptions(valid=0.1, disjoint=0.2), InProcessCluster())


def _save_arrays(path: Path, *, is_new: bool) -> None:
    import torch

    content = {"edge": np.stack([U, V], axis=1), "edge_neg": torch.from_numpy(np.stack([V, V], axis=1)), "year": U}
    if not is_new:
        del content["edge_neg"]
    torch.save(content, path, _use_new_zipfile_serialization=is_new)


def _read_arrays(path: Path) -> None:
    for array in torch_arrays(open_file(str(path))).values():
        if isinstance(array, PickledArray):
            array.write_unpacked(io.BytesIO())
        else:
            for _ in array.read_flat(0, array.size):
                pass


def _pack_and_import(folder: Path) -> None:
    """Import an archive of whatever the dataset is by now, whose own digests are right."""
    dataset = Catalog(folder / "from")["web"]
    members = [(path, path.stat().st_size) for path in files_of(dataset)]
    with (folder / "web.tar").open("wb") as raw:
        _write_members(raw, None, dataset, members)
    _import(folder)


def _store_links(folder: Path) -> None:
    dataset, adjacency = Catalog(folder).create("web"), random_adjacency(30, 90, 0, symmetric=False)
    graph, pairs = store_graph(dataset, adjacency, symmetric=False), pairs_of(adjacency, symmetric=False)
    others = pairs[:, ::-1][~adjacency[pairs[:, 0], pairs[:, 1]].astype(bool)]
    arrays = {"train/pair": pairs[:40], "valid/pair": others[:10], "test/pair": others[10:20]}
    arrays |= {f"{path.partition('/')[0]}/value": np.arange(len(pair)) % 3 for path, pair in arrays.items()}
    arrays |= {"valid/pool": others[20:25], "test/negative": np.arange(20).reshape(10, 2)}
    store_links(dataset, graph, arrays, kind="class", num_classes=3, held_out_entries=0)


def _read_links(folder: Path) -> None:
    dataset = Catalog(folder)["web"]
    links = dataset.links()
    for split in LINK_SPLITS:
        links.pair(split), links.value(split)
        if links.num_negatives(split):
            links.negative(split)
        if links.num_pooled(split):
            links.pool(split)
    links.weight()
    for problem in filter(None, (finding.problem for finding in dataset.verify())):
        raise CorruptError(problem)


def _store_propagated(folder: Path) -> None:
    dataset, adjacency = Catalog(folder).create("web"), random_adjacency(30, 90, 0, symmetric=True)
    graph = store_graph(dataset, adjacency, symmetric=True)
    steps = reference_steps(adjacency, np.random.default_rng(0).random((30, 11)), 2, "mean")
    store_propagated(dataset, graph.artifact.key, steps, normalization="mean")


def _read_propagated(folder: Path) -> None:
    dataset = Catalog(folder)["web"]
    found = dataset.propagated()
    for step in found.steps:
        found.read(step, 3, 20)
    for problem in filter(None, (finding.problem for finding in dataset.verify())):
        raise CorruptError(problem)


def _store_configured_run(folder: Path) -> None:
    run = store_run(Catalog(folder).create("web"), inputs={"shards": "0"})
    config = TrainConfig.of(catalog=str(folder), dataset="web", run="first", epochs=3, hidden=(4,))
    write_json(run.config_path, config.to_json())


def _read_configured_run(folder: Path) -> None:
    """What commands do with the configuration of a run before they compute: nothing that it names is imported."""
    dataset = Catalog(folder)["web"]
    run = Run(dataset.run_path("first"))
    try:
        command_line(TrainConfig.of_run(run))
        configure({"catalog": str(folder), "dataset": "web", "run": "first"})
        look_up(run, PredictConfig.of_run(dataset, run))
    except InputError as error:
        if "cannot be imported" in str(error):
            raise AssertionError(str(error)) from error
        raise


def _stored_targets() -> Iterator[Target]:
    yield Target(
        "json",
        lambda folder: write_json(folder / "a.json", {"a": 1, "b": [1, {"c": "text"}]}),
        lambda folder: read_json(folder / "a.json"),
    )
    yield Target("archive", _export, _import)
    yield Target("archive contents", lambda folder: store_small_dataset(Catalog(folder / "from")), _pack_and_import)
    yield Target(
        "dataset",
        lambda folder: store_small_dataset(Catalog(folder)),
        lambda folder: [finding.problem for finding in Catalog(folder)["web"].verify()],
    )
    yield Target("configuration", _store_configured_run, _read_configured_run)
    yield Target("links", _store_links, _read_links)
    yield Target("propagated", _store_propagated, _read_propagated)
    yield Target(
        "drawn links", _draw_links, lambda folder: [found.problem for found in Catalog(folder)["web"].verify()]
    )
    for form, is_new in (("torch arrays", True), ("old torch arrays", False)):
        yield Target(
            form,
            lambda folder, is_new=is_new: _save_arrays(folder / "a.pt", is_new=is_new),  # type: ignore[misc]
            lambda folder: _read_arrays(folder / "a.pt"),
        )
    yield Target(
        "recipe",
        lambda folder: shutil.copy(RECIPES / "quick-start.toml", folder / "a.toml"),
        lambda folder: read_recipe(folder / "a.toml", folder),
    )


def _typed_targets() -> Iterator[Target]:
    """Inputs of graphs with types, which are compared with what a simple reader makes of them."""
    for name, given in typed_inputs():
        yield Target(name, given.write, given.compare)


def targets() -> dict[str, Target]:
    """All readers, by name."""
    return {target.name: target for target in (*_edge_targets(), *_typed_targets(), *_stored_targets())}


def damaged(content: bytes, chosen: random.Random) -> bytes:
    """A copy with one to three changes: flipped bits, numbers, cut ends, repeated or dropped parts."""
    changed = bytearray(content)
    for _ in range(chosen.randint(1, 3)):
        place = chosen.randrange(len(changed) + 1)
        length = chosen.choice([1, 2, 4, 8, 30])
        kind = chosen.randrange(7)
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << chosen.randrange(8)
        elif kind == 1:
            changed[place : place + length] = chosen.randbytes(length)
        elif kind == 2:
            del changed[place:]
        elif kind == 3:
            changed[place:place] = changed[max(0, place - length) : place]
        elif kind == 4:
            del changed[place : place + length]
        elif kind == 5:
            changed[place : place + chosen.choice([0, 1])] = chosen.choice(_NASTY)
        else:
            changed[place : place + length] = bytes([chosen.choice([0, 255])]) * length
    return bytes(changed)


#: Texts on which parsers of numbers and headers stumble.
_NASTY = (
    b"-1", b"0", b"1e400", b"nan", b"9" * 20, b"9" * 5000, "²".encode(), b"\xff\xfe", b"\0", b" ", b"\n", b"{",
    b"[" * 3000, (2**31 - 1).to_bytes(4, "little"), (2**63 - 1).to_bytes(8, "little"), b"(", b"../../x", b"\\u0000",
    *(name.encode() for name in HOSTILE_NAMES),
)  # fmt: skip


def fuzz(target: Target, folder: Path, seed: int, *, inputs: int = 0, seconds: float = 0.0) -> Outcome:
    """Read damaged inputs: so many, or for so many seconds."""
    valid = folder / "valid"
    files = valid_files(target, valid)
    chosen, outcome, began = random.Random(seed), Outcome(), time.monotonic()
    while outcome.inputs < inputs or time.monotonic() - began < seconds:
        copy = folder / "damaged"
        shutil.copytree(valid, copy, ignore=shutil.ignore_patterns("into"))
        file = chosen.choice(files)
        _damage(copy, file, chosen)
        read_one(target, copy, f"{target.name}, seed {seed}, input {outcome.inputs}, {file}", outcome)
        shutil.rmtree(copy)
    return outcome


def _damage(folder: Path, file: Path, chosen: random.Random) -> None:
    """Damage a file; half of the times, the checksums that cover it fit the damage."""
    path = folder / file
    sealed = chosen.random() < SEALED
    # Damaged bytes of JSON mostly do not parse, so values are changed, too.
    if not (sealed and path.suffix == ".json" and chosen.random() < 0.7 and change_values(path, chosen)):
        path.write_bytes(damaged(path.read_bytes(), chosen))
    if sealed:
        seal_again(folder, file)


def valid_files(target: Target, valid: Path) -> list[Path]:
    """Make the valid input in a new folder, and read it; returns its files, relative to the folder."""
    valid.mkdir(parents=True)
    target.make(valid)
    with suppress(GnnloomError) if target.refused else nullcontext():
        target.read(valid)
    shutil.rmtree(valid / "into", ignore_errors=True)
    return sorted(path.relative_to(valid) for path in valid.rglob("*") if path.is_file() and path.stat().st_size)


class HangError(BaseException):
    """An input is still being read after ``HANG_SECONDS``. Not an ``Exception``, so that no reader handles it."""


@contextmanager
def _time_limit() -> Iterator[None]:
    def end(number: int, frame: object) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(HANG_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def read_one(target: Target, copy: Path, what: str, outcome: Outcome) -> None:
    """Read an input, and count what happens."""
    outcome.inputs += 1
    began, peak = time.process_time(), _peak_memory()
    try:
        with _time_limit():
            target.read(copy)
    except GnnloomError as error:
        outcome.refused += 1
        # Mistakes of a recipe are reported together, a line each.
        if "\n" in str(error) and not str(error).split("\n", 1)[0].endswith(" mistakes:"):
            outcome.failures.append(f"{what}: the error has several lines: {error!s:.300}")
    except (Exception, HangError):  # noqa: BLE001 - whatever else is raised is what is looked for
        outcome.failures.append(f"{what}: {traceback.format_exc(limit=-4)}")
    if time.process_time() - began > SLOW_SECONDS:
        outcome.failures.append(f"{what}: took {time.process_time() - began:.0f} s of processor time")
    if _peak_memory() - peak > MOST_MEMORY:
        outcome.failures.append(f"{what}: took {(_peak_memory() - peak) >> 20} MiB of memory")


def guided(target: Target, folder: Path, seed: int, seconds: float) -> Outcome:
    """The same with inputs that follow the coverage of the reader's code, in a process of its own; needs atheris."""
    counts = folder / "counts.json"
    program = [sys.executable, str(Path(__file__).with_name("guided_fuzzing.py")), target.name]
    options = ["--seconds", str(max(1, int(seconds))), "--seed", str(seed), "--counts", str(counts)]
    done = subprocess.run([*program, *options], capture_output=True, text=True, check=False)
    outcome = Outcome(**json.loads(counts.read_text())) if counts.exists() else Outcome()
    if done.returncode:
        outcome.failures.append(f"{target.name}: ended with status {done.returncode}\n{done.stderr[-2000:]}")
    return outcome


def main() -> None:
    """Fuzz all targets, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[], help="readers to fuzz; all by default")
    parser.add_argument("--seconds", type=float, default=180.0, help="for each reader")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--blind", action="store_true", help="do not follow coverage, even if atheris is installed")
    given = parser.parse_args()
    follows = not given.blind and find_spec("atheris") is not None
    sys.stdout.write("guided by coverage\n" if follows else "blind\n")
    total = Outcome()
    for name, target in targets().items():
        if given.names and name not in given.names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            if follows:
                found = guided(target, Path(folder), given.seed, given.seconds)
            else:
                found = fuzz(target, Path(folder), given.seed, seconds=given.seconds)
        sys.stdout.write(f"{name}: {found.inputs} inputs, {found.refused} refused, {len(found.failures)} failures\n")
        sys.stdout.write("".join(f"{failure}\n" for failure in found.failures[:5]))
        sys.stdout.flush()
        total.inputs += found.inputs
        total.failures += found.failures
    sys.stdout.write(f"RESULT fuzz_inputs {total.inputs} inputs\nRESULT fuzz_failures {len(total.failures)} failures\n")
    sys.exit(1 if total.failures else 0)


if __name__ == "__main__":
    main()
