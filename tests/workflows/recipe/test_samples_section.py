"""`[samples]` draws the batches of a recipe's training ahead of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.workflows.api.recipe import run
from gnnloom.workflows.recipe.read import read_recipe
from gnnloom.workflows.recipe.stages.all_stages import find_stages
from support.lone_training import install

RECIPE = """
[dataset]
name = "net"

[source]
format = "sbm"
vertices = 200
edges = 900

[samples]
epochs = 2

[train]
mode = "neighbor"
hidden = 8
fanout = [4, 3]
batch_size = 16
epochs = 3
threads = 1

[cluster]
workers = 0
"""


def write(folder: Path, text: str = RECIPE) -> Path:
    path = folder / "net.toml"
    path.write_text(text)
    return path


def test_the_stage_makes_what_the_training_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    path, root = write(tmp_path), tmp_path / "catalog"
    workload = find_stages(read_recipe(path, root), ClusterOptions())
    names = [stage.name for stage in workload.stages]
    assert names.index("shards") < names.index("samples") < names.index("train")
    stored = run(path, catalog=root)
    assert stored is not None
    dataset = Catalog(root)["net"]
    samples = dataset.samples()
    assert samples.artifact.key == workload.found.keys["samples"]
    assert (samples.num_epochs, samples.fanouts, samples.batch_size) == (2, (4, 3), 16)
    assert stored.config()["samples"] == samples.artifact.key
    drawn = run(path, catalog=root, settings={"samples.epochs": 0})
    assert drawn is not None
    assert drawn.name != stored.name
    # The third epoch reads the first one again.
    assert stored.result()["loss"][:2] == drawn.result()["loss"][:2]
    again = find_stages(read_recipe(path, root), ClusterOptions())
    assert all(stage.is_done for stage in again.stages)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('mode = "neighbor"\nhidden = 8\nfanout = [4, 3]\nbatch_size = 16\n', "", "mode full reads no samples"),
        ("fanout = [4, 3]", "fanout = [4]", "fanout 4: .* 2 layers"),
        ("epochs = 2", "epochs = -1", "expected at least 0"),
        ("epochs = 2", 'cache_memory = "1G"', "no effect without epochs"),
        ('mode = "neighbor"', 'mode = "neighbor"\nsamples = "ab"', "names samples already"),
    ],
)
def test_samples_that_nothing_reads_are_refused(tmp_path: Path, before: str, after: str, message: str) -> None:
    assert before in RECIPE
    text = RECIPE.replace(before, after, 1)
    with pytest.raises(InputError, match=message):
        read_recipe(write(tmp_path, text), tmp_path / "catalog")
