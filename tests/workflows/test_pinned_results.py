"""Keys, digests and losses stay the same, however the code is moved or renamed.

``pinned_results.json`` holds those of the released format. A difference means that existing artifacts are no longer
found, or that the same input gives different bytes. Either is a change of the format, and needs a new FORMAT_VERSION.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from gnnloom.workflows.cli.main import cli

_PINNED = Path(__file__).with_name("pinned_results.json")

#: Commands that run in this order on one catalog; each stores at least one artifact.
STAGES = (
    "generate blocks sbm --vertices 300 --edges 2000 --classes 3 --dim 7 --seed 5",
    "generate roads lattice --size 20x20 --shortcuts 0.05 --seed 2",
    "generate web rmat --scale 8 --edge-factor 6 --directed --codec small",
    "features web random --dim 5 --classes 4 --seed 3",
    "ingest text {folder}/edges.tsv --weights --merge max --self-loops keep",
    "ingest names {folder}/names.tsv --undirected --ids compact",
    "partition blocks --parts 2 --method block",
    "partition blocks --parts 3 --method random --seed 4",
    "partition blocks --parts 2 --method mtkahypar",
    "partition web --parts 2 --method multilevel --directions both",
    "partition blocks --parts 4 --method mtkahypar --model stochastic --batch-rate 0.2",
    "shard blocks --parts 2 --method mtkahypar",
    "shard blocks --parts 3 --method random",
    "shard blocks --grid 4x4 --permutation double --seed 6",
    "shard web --grid 3x2 --permutation single",
    "shard web --parts 2 --method multilevel",
)

#: Commands that train; all of them use the same number of epochs, widths and dtype.
RUNS = {
    "p2p": "train blocks --ranks 2 --dropout 0.3 --norm layer",
    "gat": "train web --ranks 2 --model gat --heads 2",
    "summa": "train blocks --ranks 2 --algorithm summa --grid 1x2 --model sage --residual --optimizer sgd --lr 0.1",
    "tensor3d": "train web --ranks 2 --algorithm tensor3d --grid 2x1x1",
}
_TRAINING = "--hidden 8,8 --epochs 5 --precision float64 --json"
#: Processors whose vector registers differ in width add float64 numbers in a different order.
_RELATIVE = 2**16 * np.finfo(np.float64).eps


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two text files, and a catalog in which all stages have run."""
    folder = tmp_path_factory.mktemp("pinned")
    numbers = [(i * i % 97, (7 * i + 3) % 89, (i % 13) / 4) for i in range(500)]
    (folder / "edges.tsv").write_text("".join(f"{u}\t{v}\t{weight}\n" for u, v, weight in numbers))
    (folder / "names.tsv").write_text("".join(f"v{u:x}\tw{v}\n" for u, v, _ in numbers))
    for stage in STAGES:
        _gnnloom(folder, f"{stage.format(folder=folder)} --workers 0")
    return folder


def _gnnloom(folder: Path, arguments: str) -> str:
    result = CliRunner().invoke(cli, ["--catalog", str(folder / "catalog"), *arguments.split()])
    assert result.exit_code == 0, f"{arguments}\n{result.output}\n{result.exception}"
    return result.stdout


def _digests(folder: Path) -> dict[str, str]:
    """Return the digest of every artifact by dataset, kind and key, read without gnnloom."""
    found = {}
    for path in sorted((folder / "catalog").glob("*/*/*/manifest.json")):
        dataset, kind, key = path.parts[-4:-1]
        # A file is identified by its path and time, so the keys of artifacts made from files differ every time.
        name = f"{dataset}/{kind}" if dataset in {"text", "names"} else f"{dataset}/{kind}/{key}"
        found[name] = json.loads(path.read_text())["digest"]
    return found


def _trained(folder: Path, case: str) -> dict[str, Any]:
    """Train, and return the name of the run and its losses."""
    result = json.loads(_gnnloom(folder, f"{RUNS[case]} {_TRAINING}"))
    return {name: result[name] for name in ("run", "loss")}


def test_keys_and_digests_are_those_of_before(folder: Path) -> None:
    assert _digests(folder) == json.loads(_PINNED.read_text())["digests"]


#: On rows and on a grid, by default.
_FEW_RUNS = ("p2p", "tensor3d")


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in _FEW_RUNS else pytest.mark.long) for case in RUNS]
)
def test_names_and_losses_of_runs_are_those_of_before(folder: Path, case: str) -> None:
    expected, trained = json.loads(_PINNED.read_text())["runs"][case], _trained(folder, case)
    assert trained["run"] == expected["run"]
    np.testing.assert_allclose(trained["loss"], expected["loss"], rtol=_RELATIVE)
