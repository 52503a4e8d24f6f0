"""What is finished is shown from a catalog that cannot be written, and what is not is refused in one line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.generators.sbm import StochasticBlockModel
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.workflows.cli.main import cli
from support.lone_training import install

TRAIN = "--hidden 4 --epochs 2 --threads 1"
#: Commands, and what the error of those says that would have to write.
COMMANDS = {
    "train web/first": None,
    f"train web/first --ranks 1 {TRAIN}": None,
    "train web/first --plan": None,
    "predict web/first": None,
    "predict web/first --out {out}/classes.csv": None,
    "export web/first predictions --out {out}/exported.csv": None,
    "export web/first metrics --out {out}/metrics.csv": None,
    "export web edges --out {out}/edges.csv": None,
    "report web/first --out {out}/report": None,
    "catalog ls": None,
    "catalog show web": None,
    "catalog verify web": None,
    "catalog gc --dry-run": None,
    "partition web --parts 1 --method random --workers 0": None,
    "shard web --parts 1 --workers 0": None,
    "predict web/first --embeddings": "first: these predictions are not stored yet",
    "train web/first --epochs 9": "Read-only file system",
    "train web/second --hidden 4": "Read-only file system",
    "partition web --parts 3 --method random --workers 0": "Read-only file system",
}
#: Runs commands, the collective functions of the ranks, and prints [exit code, output, error] of each.
PROGRAM = """
import json, sys
import pytest
from click.testing import CliRunner
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from gnnloom.storage import Catalog
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.cli.main import cli
from support.lone import LoneCommunicator
from support.lone_training import install

root, *commands = sys.argv[1:]
launcher, done = install(pytest.MonkeyPatch()), {}
for command in commands:
    result = CliRunner().invoke(cli, ["--catalog", root, *command.split()])
    done[command] = [result.exit_code, result.stdout, result.stderr + repr(result.exception or "")]
dataset = Catalog(root)["web"]
run = Run(dataset.run_path("first"))
done["ranks"] = train(LoneCommunicator(), TrainConfig.of_run(run))
done["again"] = predict(LoneCommunicator(), PredictConfig.of_run(dataset, run, ranks=1))
done["found"] = dataset.collect_garbage(dry_run=True) == []
print(json.dumps(done))
"""


def _can_unshare() -> bool:
    return (
        shutil.which("unshare") is not None
        and not subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode
    )


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A small graph, and a run with predictions."""
    install(monkeypatch)
    catalog = Catalog(tmp_path / "catalog")
    dataset, cluster = catalog.create("web"), InProcessCluster()
    model = StochasticBlockModel(num_vertices=60, num_edges=300, num_blocks=3, num_features=4, seed=1)
    graph = ingest_graph(dataset, model.edges(), IngestOptions(undirected=True), cluster)
    ingest_vertices(dataset, model.vertices(), cluster)
    shard_rows(dataset, partition_graph(dataset, graph, PartitionOptions(1, "random"), cluster), cluster)
    for command in (f"train web/first {TRAIN}", "predict web/first"):
        done = CliRunner().invoke(cli, ["--catalog", str(catalog.root), *command.split()])
        assert done.exit_code == 0, done.output
    return catalog


@pytest.mark.long
@pytest.mark.skipif(not _can_unshare(), reason="mounts need the rights of root")
def test_what_is_finished_is_shown_from_a_catalog_that_cannot_be_written(catalog: Catalog, tmp_path: Path) -> None:
    result = dict(json.loads((catalog["web"].run_path("first") / "result.json").read_text()))
    # A catalog that was copied, or collected, lacks locks.
    for lock in (catalog["web"].path / ".locks").glob("[!g]*"):
        lock.unlink()
    out, root = tmp_path / "out", catalog.root
    out.mkdir()
    commands = {command.format(out=out): says for command, says in COMMANDS.items()}
    mount = f'mount --bind {root} {root} && mount -o remount,ro,bind {root} && exec "$@"'
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, "sh", sys.executable, "-c", PROGRAM, str(root), *commands],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    done: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    wrong = {
        command: (code, error)
        for command, says in commands.items()
        for code, _, error in [done[command]]
        if (code == 0) != (says is None) or (says or "") not in error or "Traceback" in error
    }
    assert not wrong
    assert done["ranks"]["loss"] == result["loss"]
    assert done["again"]["reused"]
