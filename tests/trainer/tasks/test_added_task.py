"""Another package adds a task: a descriptor and a class, which train, predict and are reported."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.format import open_vertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from support.edge_files import write_edges
from support.lone import LoneCommunicator
from support.mpi import rank_command
from support.plugins import InstalledProgram
from support.tolerance import ADAM_BITS, assert_close

N, LEVELS, EPOCHS = 50, 4, 6
OPTIONS: dict[str, Any] = {
    "hidden": (6,),
    "lr": 0.05,
    "precision": "float64",
    "seed": 4,
    "threads": 1,
    "eval_every": 1,
}

#: What a user does with the task; the training goes on after three epochs.
USE = """
import json, sys
import gnnloom
import gnnloom.trainer.job.launch as launch

folder, options, ranks = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
launch.rank_python = lambda: ranks
gnnloom.train("ordered", **options, epochs=3)
run = gnnloom.train("ordered", **options, epochs=6)
gnnloom.predict(run, out=f"{folder}/predicted.csv", checkpoint="last")
page = run.report(f"{folder}/report").read_text()
print(json.dumps({**run.result(), "predicted": run.predictions().tolist(), "page": page}))
"""


class Data:
    """A graph whose vertices have ordered classes, and the same with a yes or a no for each step between classes."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(3)
        edges = rng.integers(0, N, (2, 150))
        feature, level = rng.standard_normal((N, 5)).astype(np.float32), rng.integers(-1, LEVELS, N)
        steps = np.where(level[:, None] < 0, np.nan, level[:, None] > np.arange(LEVELS - 1)).astype(np.float32)
        self.catalog, cluster = Catalog(folder / "catalog"), InProcessCluster()
        np.save(folder / "feature.npy", feature)
        np.save(folder / "split.npy", rng.integers(0, 4, N).astype(np.uint8))
        for name, label in {"ordered": level.astype(np.int32), "steps": steps}.items():
            dataset = self.catalog.create(name)
            source = write_edges(folder / name, *edges, vertices=N)
            graph = ingest_graph(dataset, source, IngestOptions(), cluster)
            np.save(folder / f"{name}.npy", label)
            files = {"feature": "feature", "split": "split", "label": name}
            files = {array: str(folder / f"{file}.npy") for array, file in files.items()}
            ingest_vertices(dataset, open_vertices("files", (), files), cluster)
            for parts in (1, 2):
                options = PartitionOptions(parts=parts, method="random", seed=2)
                shard_rows(dataset, partition_graph(dataset, graph, options, cluster), cluster)

    def config(self, dataset: str, **options: Any) -> TrainConfig:
        return TrainConfig.of(
            catalog=str(self.catalog.root), dataset=dataset, **{**OPTIONS, "epochs": EPOCHS, **options}
        )

    def train(self, dataset: str, run: str, **options: Any) -> dict[str, Any]:
        return train(LoneCommunicator(), self.config(dataset, run=run, **options))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return Data(tmp_path_factory.mktemp("tasks"))


def run_python(environment: dict[str, str], *arguments: str) -> str:
    program = [*rank_command(environment["PYTHONPATH"]), *arguments]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 2])
def test_an_added_task_trains_resumes_predicts_exports_and_is_reported(
    data: Data, added_packages: dict[str, str], tmp_path: Path, ranks: int
) -> None:
    options = {"catalog": str(data.catalog.root), "task": "ordinal", "ranks": ranks, "run": f"on-{ranks}"}
    options |= {**OPTIONS, "keep_best": "auto"}
    given = (json.dumps(each) for each in (options, rank_command(added_packages["PYTHONPATH"])))
    result = json.loads(run_python(added_packages, "-c", USE, str(tmp_path), *given))
    # The built-in task with a yes or a no for each step has the same loss, and says yes to as many steps.
    expected = data.train("steps", f"expected-{ranks}", save_embeddings=True)
    level = Run(data.catalog["steps"].run_path(f"expected-{ranks}")).predictions().multilabel().sum(1).tolist()
    assert_close(np.array(result["loss"]), np.array(expected["loss"]), steps=EPOCHS * 4, bits=ADAM_BITS)
    assert result["best"]["metric"] == "val_distance"
    assert result["best"]["value"] <= result["val_distance"]
    assert result["predicted"] == level
    header, *rows = (tmp_path / "predicted.csv").read_text().splitlines()
    assert header == "vertex,level"
    assert [int(row.partition(",")[2]) for row in rows] == level
    assert "best validation distance" in result["page"]
    assert "Confusion matrix" not in result["page"]


def test_the_help_lists_an_added_task(added_packages: dict[str, str]) -> None:
    shown = " ".join(run_python(added_packages, "-m", "gnnloom.workflows.cli.main", "train", "--help-all").split())
    assert "--task [auto|class|multilabel|number|link|edge-class|edge-number|ordinal]" in shown
    assert "ordinal Ordered classes" in shown


def test_a_named_task_is_the_one_that_the_data_suggest_and_others_are_refused(data: Data) -> None:
    named, found = (data.train("ordered", f"{task}-run", task=task, epochs=2) for task in ("class", "auto"))
    assert named["loss"] == found["loss"]
    assert named["test_accuracy"] == found["test_accuracy"]
    with pytest.raises(CollectiveError, match=r"task number:"):
        data.train("ordered", "refused", task="number")
    with pytest.raises(InputError, match="task 'ordinal':"):
        data.config("ordered", task="ordinal")


@pytest.mark.slow
def test_added_tasks_and_decoders_have_options_of_their_own(
    data: Data, added_packages: dict[str, str], tmp_path: Path
) -> None:
    program, root = InstalledProgram(added_packages, alone=True), str(data.catalog.root)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return program.run("--catalog", root, *arguments)

    def trained(*arguments: str) -> dict[str, Any]:
        done = run("train", "ordered", "--hidden", "6", "--epochs", "2", "--json", *arguments)
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    try:
        assert trained("--task", "ordinal", "--plan")["peak_memory"][0] > 0
        for threshold, level in (("-1e9", LEVELS - 1), ("1e9", 0)):
            name = f"level-{level}"
            trained("--task", "ordinal", "--ordinal-threshold", threshold, "--run", name, "--save-embeddings")
            stored = Run(data.catalog["ordered"].run_path(name))
            assert set(stored.predictions().label().tolist()) == {level}
            assert stored.config()["task_options"] == [f"ordinal_threshold={float(threshold)}"]
        for words in (("links", "ordered", "random"), ("partition", "ordered", "--parts", "1", "--links")):
            assert run(*words, "--workers", "0").returncode == 0
        assert run("shard", "ordered", "--parts", "1", "--links", "--workers", "0").returncode == 0
        link = ("--task", "link", "--output-dim", "4")
        assert trained(*link, "--decoder", "scaled", "--plan")["peak_memory"][0] > 0
        usual = trained(*link, "--run", "dot")["loss"]
        assert trained(*link, "--decoder", "scaled", "--run", "scaled")["loss"] == pytest.approx(usual)
        assert trained(*link, "--decoder", "scaled", "--decoder-scale", "2", "--run", "twice")["loss"] != pytest.approx(
            usual
        )
        refused = run("train", "ordered", *link, "--decoder-scale", "2")
        assert refused.returncode == 3
        assert re.search("decoder_scale: decoder dot .* scaled", refused.stderr + refused.stdout)
        refused = run("train", "ordered", "--task", "class", "--ordinal-threshold", "2")
        assert refused.returncode == 3
        assert re.search("ordinal_threshold: task class .* ordinal", refused.stderr + refused.stdout)
    finally:
        program.close()
