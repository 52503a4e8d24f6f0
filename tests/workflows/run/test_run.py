"""Running recipes: finished stages are found and skipped, and a run that was killed ends in the same bytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.tasks.cluster import InProcessCluster, open_cluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import ExistsError, GnnloomError, InputError
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.runs.checkpoint import Checkpoint, write_checkpoint
from gnnloom.storage.runs.run import Run, sole_writer
from gnnloom.trainer.job.launch import launch
from gnnloom.workflows.recipe.recipe import PredictSection
from gnnloom.workflows.recipe.stages import Job, Request, make_plan
from gnnloom.workflows.run.local import SAVED_RECIPE, prepare, save_recipe, train_here
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
    with pytest.raises(ExistsError, match=r"made from other shards; choose another name with --set train.run="):
        open_job(tmp_path, "train.run=mine", "source.seed=9")
    with pytest.raises(ExistsError, match=r"made with lr 0.01 \(now 0.5\); choose another name"):
        open_job(tmp_path, "train.run=mine", "train.lr=0.5")


def pretend_trained(job: Job, epochs: int) -> Run:
    """Leave what a run of so many epochs leaves, but for what it computed."""
    run = Run(job.recipe.dataset_path / "runs" / job.plan.config.run_name)
    run.start(job.plan.config.to_json(), 0)
    write_checkpoint(run.checkpoints, Checkpoint(epochs, {"weight": np.zeros(2)}, {}))
    run.finish({"epochs": epochs})
    return run


def test_fewer_epochs_than_a_run_has_are_another_run_and_more_go_on_with_it(tmp_path: Path) -> None:
    job = open_job(tmp_path)
    run(job)
    trained = pretend_trained(job, 4)
    fewer = open_job(tmp_path, "train.epochs=2")
    assert fewer.plan.config.run_name == f"{trained.name}-2"
    assert not states(fewer)["train"]
    pretend_trained(fewer, 2)
    assert states(open_job(tmp_path, "train.epochs=2"))["train"]
    assert states(open_job(tmp_path))["train"]
    more = open_job(tmp_path, "train.epochs=6")
    assert (more.plan.config.run_name, states(more)["train"]) == (trained.name, False)


def test_a_run_with_a_name_is_not_cut_to_fewer_epochs(tmp_path: Path) -> None:
    job = open_job(tmp_path, "train.run=mine")
    run(job)
    pretend_trained(job, 4)
    assert open_job(tmp_path, "train.run=mine", "train.epochs=6").plan
    with pytest.raises(ExistsError, match=r"trained for 4 epochs already, more than 2; choose another name with --set"):
        open_job(tmp_path, "train.run=mine", "train.epochs=2")


def test_a_stale_file_of_predictions_is_written_anew_without_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "classes.npy"
    run(open_job(tmp_path))
    job = Request(tmp_path / "recipe.toml", tmp_path / "catalog", (f"predict.out={out}",)).open()
    trained = pretend_trained(job, 4)
    predict_nothing(trained, 120)
    out.write_bytes(b"something else")
    again = Request(tmp_path / "recipe.toml", tmp_path / "catalog", (f"predict.out={out}",)).open()
    assert not again.plan.trains
    monkeypatch.setattr("subprocess.Popen", None)
    train_here(again.recipe, again.plan)
    assert np.array_equal(np.load(out), np.zeros(120, np.int32))


def predict_nothing(trained: Run, num_vertices: int) -> None:
    folder = trained.predictions_aside()
    label = np.zeros(num_vertices, np.int32)
    trained.publish_predictions([write_array(folder, "label", label, ("vertex",))], {"epoch": 4, "num_classes": 4})


def test_the_saved_recipe_runs_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edges.txt").write_text("0 1\n1 2\n2 0\n3 1\n")
    text = '[dataset]\nname = "tiny"\n[source]\npath = "edges.txt"\n[vertices]\nformat = "random"\n'
    (tmp_path / "recipe.toml").write_text(text + '[predict]\nout = "classes.npy"\n')
    job = Request(Path("recipe.toml"), Path("catalog")).open()
    Catalog(job.recipe.catalog).create("tiny")
    save_recipe(job.recipe, job.plan.config)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    saved = Request(tmp_path / "catalog" / "tiny" / "runs" / job.plan.config.run_name / SAVED_RECIPE, Path("other"))
    assert saved.open().plan.all_keys == job.plan.all_keys
    assert saved.open().recipe.predict == PredictSection(out=str(tmp_path / "classes.npy"))


def test_a_run_that_another_process_writes_is_left_alone(tmp_path: Path) -> None:
    job = open_job(tmp_path)
    run(job)
    with sole_writer(Run(job.recipe.dataset_path / "runs" / job.plan.config.run_name)):
        for begin in (lambda: save_recipe(job.recipe, job.plan.config), lambda: launch(job.plan.config)):
            with pytest.raises(ExistsError, match="another process is training it"):
                begin()
    assert not (job.recipe.dataset_path / "runs" / job.plan.config.run_name).exists()


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
    for _ in range(2):  # made, and found
        with pytest.raises(InputError, match=r"classes = 3, but the labels go up to 3; set classes to 4"):
            run(open_job(tmp_path, "vertices.classes=3"))
    assert Request(tmp_path / "recipe.toml", tmp_path / "catalog", ("vertices.classes=3",), last="graph").open()
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
    # What the keys tell already is told before anything runs, unless nothing but the graph is wanted.
    with pytest.raises(InputError, match="nothing lies beside the edges"):
        open_job(tmp_path, text=base)
    assert Request(tmp_path / "recipe.toml", tmp_path / "catalog", last="graph").open().plan.prepares
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
