"""Ranks that were started differently, or that find different data, do not begin: one message says who differs in what.

A batch system may start the ranks of a job with other options, on machines with another gnnloom, or with catalogs of
their own; they would train to the results of none of them, or wait for each other without end.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.option import options_of
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from support.damage import replace_array
from support.mpi import run_different, run_program, run_ranks
from support.problems import problem

PROBLEM = problem("web", 60, 240, symmetric=False)
#: Seconds within which ranks that differ have left.
_SECONDS = 5.0

RANK = ("-m", "gnnloom.trainer")
CLI = ("-m", "gnnloom")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("differing") / "catalog")
    PROBLEM.store(catalog, 2)
    return catalog


def _given(catalog: Catalog, *options: str) -> tuple[str, ...]:
    made = ("--ranks", "2", "--hidden", "4", "--epochs", "2", "--threads", "1")
    return ("--catalog", str(catalog.root), "web", *made, *options)


def _check_refused(done: subprocess.CompletedProcess[str], *says: str) -> None:
    assert done.returncode == 3, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line]
    assert line.startswith("error: ranks differ in ")
    for text in says:
        assert text in line


@pytest.mark.slow
def test_ranks_that_differ_in_any_field_do_not_begin(tmp_path: Path) -> None:
    software = ("gnnloom", "torch")
    of_training = [*options_of(TrainConfig), "restart", *software]
    of_prediction = [*options_of(PredictConfig), *software]
    cases = [("train", name) for name in of_training] + [("predict", name) for name in of_prediction]
    slowest = []
    everyones = run_program(3, "differing", tmp_path, cases)
    for (command, name), *ended in zip(cases, *everyones, strict=True):
        assert [code for code, _, _ in ended] == [3, 3, 3], (command, name)
        # The first rank reports for all.
        assert [errors for _, errors, _ in ended[1:]] == ["", ""]
        (line,) = ended[0][1].splitlines()
        shown = name if name in software else f"--{name.replace('_', '-')}"
        assert line.startswith(f"error: ranks differ in {shown}: "), (command, name)
        assert "(ranks 0, 1), " in line
        assert "(rank 2)" in line
        slowest.append(max(seconds for _, _, seconds in ended))
    # Of all cases, as a busy machine may stop a single one for seconds.
    assert statistics.median(slowest) < _SECONDS


def test_ranks_with_other_options_are_one_error(catalog: Catalog) -> None:
    given = _given(catalog, "--run", "seeds")
    done = run_different((*RANK, *given), (*RANK, *given), (*RANK, *given, "--seed", "7"))
    _check_refused(done, "--seed: 0 (ranks 0, 1), 7 (rank 2)")
    done = run_different((*RANK, *given, "--lr", "0.1", "--hidden", "8"), (*RANK, *given, "--lr", "0.2"))
    _check_refused(done, "--lr: 0.1 (rank 0), 0.2 (rank 1)", "--hidden: 8 (rank 0), 4 (rank 1)")
    assert catalog["web"].runs() == []


@pytest.mark.slow
def test_ranks_with_other_code_of_a_users_model_or_loss_are_one_error(catalog: Catalog, tmp_path: Path) -> None:
    """As on machines on which a file of the same name was changed on one only."""
    program = "import os, sys; os.chdir(sys.argv.pop(1));"
    program += "from gnnloom.trainer.__main__ import main; from gnnloom.trainer.comm.mpi import world;"
    program += "code = main(sys.argv[1:]); world().close(); sys.exit(code)"
    for name, scale in (("first", 1), ("second", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text(
            "from torch.nn.functional import cross_entropy\n"
            "from gnnloom.trainer.models.networks.gcn import GCN\n"
            f"class Scaled(GCN):\n    scale = {scale}\n"
            f"def scaled(scores, labels):\n    return {scale} * cross_entropy(scores, labels, reduction='none')\n"
        )
    ranks = [("-c", program, str(tmp_path / name)) for name in ("first", "second")]
    for option, own in (("--model", "mine:Scaled"), ("--loss", "mine:scaled")):
        given = _given(catalog, "--run", f"own{option}", option, own)
        _check_refused(run_different(*((*rank, *given) for rank in ranks)), f"code of {option}: ")
        same = run_different((*ranks[0], *given), (*ranks[0], *given))
        assert same.returncode == 0, same.stderr


@pytest.mark.long
def test_a_training_beside_a_prediction_is_one_error(catalog: Catalog) -> None:
    train = _given(catalog, "--run", "both")
    assert run_ranks(2, *RANK, *train).returncode == 0
    predict = ("predict", "--catalog", str(catalog.root), "web", "--ranks", "2", "--run", "both")
    done = run_different((*RANK, *train), (*RANK, *predict))
    _check_refused(done, "command: train (rank 0), predict (rank 1)")
    of_rank = ("--catalog", str(catalog.root))
    done = run_different((*CLI, *of_rank, "train", "web/both"), (*CLI, *of_rank, "predict", "web/both"))
    _check_refused(done, "command: gnnloom train (rank 0), gnnloom predict (rank 1)")
    done = run_different((*CLI, *of_rank, "train", "web", "--algorithm", "auto"), (*RANK, *train))
    _check_refused(done, "command: gnnloom train (rank 0), train (rank 1)")


@pytest.mark.slow
def test_catalogs_of_the_same_path_with_other_data_are_one_error(catalog: Catalog, tmp_path: Path) -> None:
    """As on machines whose local disks have copies of a catalog that are not the same."""
    other = Catalog(tmp_path / "other" / "catalog")
    problem("web", 60, 200, symmetric=False).store(other, 2)
    shutil.copytree(catalog.root, tmp_path / "catalog")
    program = "import os, sys; os.chdir(sys.argv.pop(1)); from gnnloom.trainer.training import alike;"
    # The paths are made equal, as they are on two machines.
    program += "alike._text = lambda name, value: str(value);"
    program += "from gnnloom.trainer.__main__ import main; from gnnloom.trainer.comm.mpi import world;"
    program += "code = main(sys.argv[1:]); world().close(); sys.exit(code)"
    given = ("--catalog", "catalog", "web", "--ranks", "2", "--hidden", "4", "--epochs", "2", "--run", "local")
    done = run_different(("-c", program, str(tmp_path), *given), ("-c", program, str(tmp_path / "other"), *given))
    _check_refused(done, "key of the ", "the catalog must be on a file system that all machines share")
    done = run_different(("-c", program, str(tmp_path), *given), ("-c", program, str(tmp_path), *given))
    assert done.returncode == 0, done.stderr
    shutil.copytree(tmp_path / "catalog", tmp_path / "later" / "catalog")
    done = run_different(
        ("-c", program, str(tmp_path), *given, "--epochs", "3"), ("-c", program, str(tmp_path), *given, "--epochs", "3")
    )
    assert done.returncode == 0, done.stderr
    more = ("--epochs", "4")
    done = run_different(
        ("-c", program, str(tmp_path), *given, *more), ("-c", program, str(tmp_path / "later"), *given, *more)
    )
    _check_refused(done, "epoch of the last checkpoint: 3 (rank 0), 2 (rank 1)")


def _exchanged(rows: np.ndarray) -> np.ndarray:
    return rows[[1, 0, *range(2, len(rows))]]


def _another(rows: np.ndarray) -> np.ndarray:
    return np.append(rows[:-1], rows[-1] - 1 if rows[-2] < rows[-1] - 1 else rows[-1] + 1)


#: Arrays of the second rank's shard, and what they hold instead: with right checksums, within all limits.
_OF_OTHERS: dict[str, dict[str, Callable[[np.ndarray], np.ndarray]]] = {
    "one row less is sent": {"send_row": lambda rows: rows[:-1], "send_offset": lambda offset: offset - (offset > 0)},
    "two sent rows are exchanged": {"send_row": _exchanged},
    "another row is awaited": {"halo_vertex": _another},
    "two rows of the transpose are exchanged": {"transpose/send_row": _exchanged},
}


def _damaged(catalog: Catalog, folder: Path, case: str) -> Catalog:
    shutil.copytree(catalog.root, folder)
    shards = Catalog(folder)["web"].row_shards(2).artifact
    for name, change in _OF_OTHERS[case].items():
        shards = replace_array(shards, f"row/00001/{name}", change)
    return Catalog(folder)


def _check_one_error(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 3, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "error: " in line]
    assert "row/0000" in line
    assert "do not belong together" in line


@pytest.mark.parametrize("case", _OF_OTHERS)
def test_shards_that_do_not_belong_together_train_nothing(catalog: Catalog, tmp_path: Path, case: str) -> None:
    """As after a copy of which some files are of another copy: each shard agrees with its own checksums."""
    damaged = _damaged(catalog, tmp_path / "catalog", case)
    _check_one_error(run_ranks(2, *RANK, *_given(damaged, "--run", "mixed"), timeout=30))
    assert "mixed" not in damaged["web"].runs()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["minibatch", "gat", "propagate", "predict", "predict from disk"])
def test_all_that_exchanges_rows_refuses_shards_that_do_not_belong_together(
    catalog: Catalog, tmp_path: Path, command: str
) -> None:
    made = Catalog(shutil.copytree(catalog.root, tmp_path / "made"))
    shutil.rmtree(tmp_path / "made" / "web" / "runs", ignore_errors=True)
    if command.startswith("predict"):
        done = run_ranks(2, *RANK, *_given(made, "--run", "a"))
        assert done.returncode == 0, done.stderr
    case = "two rows of the transpose are exchanged" if command == "minibatch" else "two sent rows are exchanged"
    damaged = _damaged(made, tmp_path / "catalog", case)
    where = ("--catalog", str(damaged.root))
    arguments = {
        "minibatch": (*RANK, *_given(damaged, "--mode", "minibatch", "--batch-size", "20", "--model", "gat")),
        "gat": (*RANK, *_given(damaged, "--model", "gat")),
        "propagate": (*CLI, *where, "propagate", "web", "--threads", "1", "--normalization", "mean"),
        "predict": (*CLI, *where, "predict", "web/a"),
        "predict from disk": (*CLI, *where, "predict", "web/a", "--evaluation-memory", "1MB"),
    }[command]
    _check_one_error(run_ranks(2, *arguments, timeout=30))
