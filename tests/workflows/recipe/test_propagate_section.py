"""`[propagate]` stores what a recipe's training on rows reads, or stops there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.storage import Catalog
from gnnloom.storage.errors import BudgetError, InputError
from gnnloom.trainer.config.propagate_config import PropagateConfig
from gnnloom.trainer.job.launch import prepare_propagation
from gnnloom.workflows.api.recipe import run
from gnnloom.workflows.recipe.read import read_recipe
from gnnloom.workflows.recipe.stages.all_stages import find_stages
from support.in_process import answer
from support.lone_training import install

RECIPE = """
[dataset]
name = "net"
undirected = true

[source]
format = "sbm"
vertices = 200
edges = 900

[propagate]
steps = 2
memory = "2G"
threads = 1

[train]
mode = "rows"
model = "sign"
hidden = 8
epochs = 3
threads = 1

[cluster]
workers = 0
"""
WITHOUT_TRAINING = RECIPE.partition("[train]")[0] + "[cluster]" + RECIPE.partition("[cluster]")[2]


def write(folder: Path, text: str = RECIPE) -> Path:
    path = folder / "net.toml"
    path.write_text(text)
    return path


def command(path: Path, root: Path, *words: str) -> dict[str, Any]:
    return answer(root, "run", str(path), *words)


def planned(path: Path, root: Path) -> dict[str, Any]:
    return {stage["stage"]: stage for stage in command(path, root, "--plan")["stages"]}


@pytest.mark.slow
def test_one_file_goes_from_raw_data_to_a_training_on_propagated_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    path, root = write(tmp_path), tmp_path / "catalog"
    workload = find_stages(read_recipe(path, root), ClusterOptions())
    names = [stage.name for stage in workload.stages]
    assert names == ["graph", "vertices", "partition", "shards", "propagated", "train"]
    before = planned(path, root)
    assert not root.exists()
    stored = run(path, catalog=root)
    assert stored is not None
    dataset = Catalog(root)["net"]
    found = dataset.propagated()
    assert found.artifact.key == workload.found.keys["propagated"]
    assert (found.steps, found.normalization) == ((1, 2), "symmetric")
    assert stored.config()["propagated"] == found.artifact.key
    assert all(stage.is_done for stage in find_stages(read_recipe(path, root), ClusterOptions()).stages)
    assert all(stage["done"] for stage in planned(path, root).values())
    # The plan before there was anything is that of the command on the shards.
    config = PropagateConfig.of(catalog=str(root), dataset="net", steps=2, memory=2 << 30, threads=1)
    path_of_values, plan = prepare_propagation(config)
    exact, stage = plan.described(), before["propagated"]
    assert path_of_values == found.artifact.path
    assert (stage["disk"], stage["scratch"]) == (exact["bytes_written"], exact["temporary_bytes"])
    assert stage["memory"] == pytest.approx(exact["peak_memory"], rel=0.01)
    assert "in 1 pass, adjacency in memory" in stage["note"]
    # Other steps are other values, and another run; shards stay.
    other = run(path, catalog=root, settings={"propagate.steps": 3})
    assert other is not None
    assert other.name != stored.name
    assert len(dataset.artifacts("propagated")) == 2
    assert len(dataset.artifacts("shards")) == 1


def test_a_recipe_may_end_with_propagated_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    path, root = write(tmp_path, WITHOUT_TRAINING.replace("steps = 2", "steps = 2\nppr = 0.2")), tmp_path / "catalog"
    assert planned(path, root)["propagated"]["disk"] > 0
    command(path, root, "--until", "shards")
    after = planned(path, root)
    assert [name for name, stage in after.items() if not stage["done"]] == ["propagated"]
    done = command(path, root)
    found = Catalog(root)["net"].propagated()
    assert done["keys"]["propagated"] == found.artifact.key
    assert done["digests"]["propagated"] == found.artifact.digest
    assert (found.steps, found.ppr) == ((2,), 0.2)
    assert read_recipe(path, root).num_ranks == 1


def test_too_little_memory_is_refused_by_the_plan(tmp_path: Path) -> None:
    path = write(tmp_path, RECIPE.replace('"2G"', '"1M"'))
    with pytest.raises(BudgetError, match="--memory 1 MiB: "):
        planned(path, tmp_path / "catalog")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('mode = "rows"\nmodel = "sign"\n', "", r"net.toml, line 12: \[propagate\] steps: mode full reads no"),
        ("steps = 2", 'steps = 2\nof = "label"', r"\[propagate\] of: training reads propagated features"),
        ("steps = 2", "stepps = 2", "did you mean steps"),
        ("steps = 2", "steps = 0", r"line 13: \[propagate\] memory: has no effect without steps"),
        ("steps = 2", "steps = -1", r"line 12: \[propagate\] steps -1: expected at least 0"),
        ('"2G"', '"much"', "memory: 'much' is not a size"),
        ("threads = 1\n\n", "ranks = 2\n\n", "has no key 'ranks'"),
        (
            'model = "sign"',
            'model = "sign"\nsteps = [0, 3]',
            r"steps: \[train\] steps = \[0, 3\], but the section",
        ),
        ('model = "sign"', 'model = "mlp"\nsteps = 0', "0 are the features alone"),
        ('mode = "rows"', 'mode = "rows"\npropagated = "ab"', "names values already"),
        ('[train]\nmode = "rows"\nmodel = "sign"\n', '[shards]\nlayout = "grid"\n[train]\n', "reads row shards"),
    ],
)
def test_what_nothing_reads_is_refused(tmp_path: Path, before: str, after: str, message: str) -> None:
    assert before in RECIPE
    with pytest.raises(InputError, match=message):
        read_recipe(write(tmp_path, RECIPE.replace(before, after, 1)), tmp_path / "catalog")
