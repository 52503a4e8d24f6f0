"""Running recipes: finished stages are found and skipped, and a run that was killed ends in the same bytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.cluster import InProcessCluster, open_cluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import ExistsError, GnnloomError, InputError
from gnnloom.storage.run import Run
from gnnloom.workflows.plan import Job, Request, make_plan
from gnnloom.workflows.run import prepare
from support.ogb_folders import write_ogb_binary_folder

RECIPE = """\
[dataset]
name = "tiny"
undirected = true

[source]
format = "sbm"
vertices = 120
edges = 900
classes = 4
dim = 8

[partition]
method = "random"

[train]
ranks = 3
hidden = [8]
epochs = 4
"""
PROGRAM = Path(__file__).parent / "programs" / "killed_run.py"


def open_job(folder: Path, *settings: str, text: str = RECIPE, catalog: str = "catalog") -> Job:
    path = folder / "recipe.toml"
    path.write_text(text)
    return Request(path, folder / catalog, settings, last="shards").open()


def run(job: Job) -> dict[str, str]:
    """Prepare; returns the digests by kind and key."""
    prepare(job.recipe, job.plan, InProcessCluster(job.cluster.memory))
    return digests(job.recipe.catalog, job.recipe.dataset.name)


def digests(catalog: Path, name: str = "tiny") -> dict[str, str]:
    dataset = Catalog(catalog)[name]
    infos = [info for info in dataset.artifacts() if info.state == "complete"]
    return {f"{info.kind}/{info.key}": dataset.find(info.kind, info.key).digest for info in infos}


def states(job: Job) -> dict[str, bool]:
    plan = make_plan(job.recipe, job.cluster.memory)
    return {step.stage: step.is_done for step in plan.steps}


def test_the_plan_names_what_the_stages_make_before_they_run(tmp_path: Path) -> None:
    job = open_job(tmp_path)
    assert not any(states(job).values())
    assert set(run(job)) == {f"{step.stage}/{step.key}" for step in job.plan.steps}
    assert states(job) == {"graph": True, "vertices": True, "partition": True, "shards": True, "train": False}
    assert not open_job(tmp_path).plan.prepares


def test_a_grid_may_be_ordered_by_a_partition_of_any_number_of_parts(tmp_path: Path) -> None:
    settings = ["train.algorithm=summa", "shards.grid=2,2", "shards.permutation=partition", "partition.parts=5"]
    job = open_job(tmp_path, *settings)
    assert set(run(job)) == {f"{step.stage}/{step.key}" for step in job.plan.steps} | _transposed(job)
    shards = Catalog(job.recipe.catalog)["tiny"].find("shards")
    assert shards.parameters["permutation"] == "partition"
    assert shards.parameters["parts"] == 5
    assert shards.inputs["partition"] == job.plan.all_keys["partition"]


def _transposed(job: Job) -> set[str]:
    return {f"transpose/{info.key}" for info in Catalog(job.recipe.catalog)["tiny"].artifacts("transpose")}


@pytest.mark.parametrize(
    "extra",
    ['[vertices]\nformat = "random"\ndim = 4\nclasses = 3\n', '[vertices]\nformat = "degree-labels"\nclasses = 3\n'],
)
def test_synthetic_vertex_data_and_directed_grid_shards_are_foreseen_too(tmp_path: Path, extra: str) -> None:
    settings = ["train.algorithm=broadcast", "shards.grid=2,3", "dataset.undirected=false", "shards.permutation=single"]
    job = open_job(tmp_path, *settings, text=RECIPE + extra)
    assert [step.stage for step in job.plan.steps] == ["graph", "vertices", "shards"]
    made = {name for name in run(job) if not name.startswith("transpose/")}
    assert made == {f"{step.stage}/{step.key}" for step in job.plan.steps}


def test_a_changed_parameter_redoes_what_depends_on_it_and_nothing_else(tmp_path: Path) -> None:
    before = run(open_job(tmp_path))
    changed = open_job(tmp_path, "partition.seed=5")
    assert states(changed) == {"graph": True, "vertices": True, "partition": False, "shards": False, "train": False}
    after = run(changed)
    assert len(after) == len(before) + 2
    assert before.items() <= after.items()
    assert not open_job(tmp_path, "train.lr=0.5").plan.prepares


def test_another_source_makes_another_graph_and_all_that_depends_on_it(tmp_path: Path) -> None:
    before = run(open_job(tmp_path))
    other = open_job(tmp_path, "source.seed=9")
    assert not any(states(other).values())
    after = run(other)
    assert before.items() <= after.items()
    assert set(after) - set(before) == {f"{step.stage}/{step.key}" for step in other.plan.steps}
    assert after.items() >= run(open_job(tmp_path, "source.seed=9", catalog="fresh")).items()
    random = open_job(tmp_path, "vertices.format=random", "train.algorithm=broadcast")
    assert states(random) == {"graph": True, "vertices": False, "shards": False, "train": False}
    assert {f"{step.stage}/{step.key}" for step in random.plan.steps} <= set(run(random))
    assert all(states(open_job(tmp_path))[stage] for stage in ("graph", "vertices", "partition", "shards"))


def test_a_run_of_other_shards_keeps_its_name(tmp_path: Path) -> None:
    job = open_job(tmp_path, "train.run=mine")
    run(job)
    Run(Catalog(job.recipe.catalog)["tiny"].run_path("mine")).start(job.plan.config.to_json(), 0)
    assert open_job(tmp_path, "train.run=mine").plan
    with pytest.raises(ExistsError, match=r"made from other shards; choose another name \(--set train.run="):
        open_job(tmp_path, "train.run=mine", "source.seed=9")


def test_killed_after_every_task_and_started_again_a_run_ends_in_the_same_bytes(tmp_path: Path) -> None:
    expected = run(open_job(tmp_path))
    command = [sys.executable, str(PROGRAM), str(tmp_path / "recipe.toml"), str(tmp_path / "killed")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    kills, code = map(int, done.stdout.split())
    assert code == 0
    assert kills >= 10
    assert digests(tmp_path / "killed") == expected


def test_data_that_do_not_fit_the_training_end_the_run_before_the_partition(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"classes = 3, but the labels go up to 3; set classes to 4"):
        run(open_job(tmp_path, "vertices.classes=3"))
    edges = tmp_path / "edges.txt"
    edges.write_text("0 1\n1 2\n2 0\n3 1\n")
    np.save(tmp_path / "x.npy", np.ones((4, 2), np.float32))
    np.save(tmp_path / "y.npy", np.zeros(4, np.int32))
    np.save(tmp_path / "none.npy", np.zeros(4, np.uint8))
    base = f'[dataset]\nname = "bare"\n[source]\npath = "{edges}"\n'
    for extra, says in [
        ("", "nothing lies beside the edges"),
        (f'[vertices]\nformat = "files"\nfeature = "{tmp_path}/x.npy"\n', "label, split missing"),
    ]:
        with pytest.raises(InputError, match=says):
            run(open_job(tmp_path, f"dataset.name=bare{len(extra)}", text=base + extra))
    files = "".join(
        f'{key} = "{tmp_path}/{name}.npy"\n'
        for key, name in zip(("feature", "label", "split"), ("x", "y", "none"), strict=True)
    )
    with pytest.raises(InputError, match="no vertex to train on"):
        run(open_job(tmp_path, "dataset.name=split", text=f'{base}[vertices]\nformat = "files"\n{files}'))
    with pytest.raises(GnnloomError, match="200"):
        run(open_job(tmp_path, "train.ranks=200", catalog="parts"))


@pytest.mark.parametrize("name", ["rmat", "snap", "ogbn-papers100m"])
def test_the_recipes_that_come_along_prepare_at_a_small_size(tmp_path: Path, name: str) -> None:
    edges = tmp_path / "edges.txt"
    edges.write_text("".join(f"{3 * k}\t{3 * (7 * k % 50)}\n" for k in range(50)))
    settings = {
        "rmat": ("source.scale=7", "train.ranks=4", "shards.grid=4,4"),
        "snap": (f"source.path={edges}", "partition.method=random"),
        "ogbn-papers100m": (f"source.path={write_ogb_binary_folder(tmp_path / 'papers')}", "train.ranks=4"),
    }
    job = Request(Path(name), tmp_path / "catalog", settings[name], last="shards").open()
    assert len(digests_of(job)) == len(job.plan.steps)


def digests_of(job: Job) -> dict[str, str]:
    return {name: digest for name, digest in run(job).items() if not name.startswith("transpose/")}


@pytest.mark.parametrize(("name", "classes"), [("cora", 7), ("ogbn-products", 47)])
def test_recipes_for_ogb_folders_prepare_a_real_graph(
    tmp_path: Path, shared_data: Path, name: str, classes: int
) -> None:
    settings = (f"source.path={shared_data / 'cora'}", "partition.method=random", "train.ranks=2")
    job = Request(Path(name), tmp_path, settings, last="shards").open()
    run(job)
    vertices = Catalog(tmp_path)[job.recipe.dataset.name].vertices()
    assert (vertices.num_vertices, vertices.num_features, vertices.num_classes) == (2708, 1433, 7)
    assert job.recipe.vertices.most_classes == classes


def test_a_scheduler_that_runs_already_is_joined_by_its_file(tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    file = tmp_path / "scheduler.json"
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as local,
        Client(local) as client,
    ):
        client.write_scheduler_file(str(file))
        recipe = open_job(tmp_path).recipe
        with open_cluster(recipe.cluster.options(str(file))) as cluster:
            assert cluster.workers == 1
            assert sorted(cluster.map(abs, [-1, -2])) == [1, 2]
    with pytest.raises(InputError, match="expected local, mpi, an address"):
        recipe.cluster.options(str(tmp_path / "none.json"))
