"""Finished stages of a recipe are found and skipped, and a run that was killed gives the same bytes."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.cluster.open_cluster import open_cluster
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import ExistsError, GnnloomError, InputError
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.runs.checkpoint import Checkpoint, write_checkpoint
from gnnloom.storage.runs.run import SAVED_RECIPE, Run, sole_writer
from gnnloom.trainer.job.launch import launch
from gnnloom.trainer.job.ranks import NewRanks
from gnnloom.workflows.recipe.request import RecipeRequest
from gnnloom.workflows.recipe.sections import PredictSection
from gnnloom.workflows.recipe.stages.all_stages import RecipeStages, find_stages
from gnnloom.workflows.recipe.stages.stage import Display
from gnnloom.workflows.recipe.stages.train import save_recipe
from gnnloom.workflows.run.run_recipe import prepare, run_recipe
from support.mpi import rank_command
from support.ogb_folders import write_ogb_binary_folder
from support.recipes import RECIPE

PROGRAM = Path(__file__).parent / "programs" / "killed_run.py"


def check_recipe(folder: Path, *settings: str, text: str = RECIPE, catalog: str = "catalog") -> RecipeStages:
    path = folder / "recipe.toml"
    path.write_text(text)
    return RecipeRequest(path, folder / catalog, settings, last="shards").check()


def run(assignment: RecipeStages) -> dict[str, str]:
    """Run the stages before training; returns the digests of all artifacts by kind and key."""
    prepare(assignment, InProcessCluster(assignment.found.cluster.memory))
    return digests(assignment.found.recipe.catalog, assignment.found.recipe.dataset.name)


def digests(catalog: Path, name: str = "tiny") -> dict[str, str]:
    dataset = Catalog(catalog)[name]
    infos = [info for info in dataset.artifacts() if info.state == "complete"]
    return {f"{info.kind}/{info.key}": dataset.find(info.kind, info.key).digest for info in infos}


def names(assignment: RecipeStages) -> set[str]:
    """Kind and key of everything that the stages make."""
    return {f"{stage.name}/{stage.key}" for stage in assignment.stages}


def states(assignment: RecipeStages) -> dict[str, bool]:
    workload = find_stages(assignment.found.recipe, assignment.found.cluster)
    return {stage.name: stage.is_done for stage in workload.stages}


def test_stages_are_named_by_their_keys_before_they_run(tmp_path: Path) -> None:
    assignment = check_recipe(tmp_path)
    assert not any(states(assignment).values())
    assert set(run(assignment)) == names(assignment)
    assert states(assignment) == {"graph": True, "vertices": True, "partition": True, "shards": True, "train": False}
    assert not check_recipe(tmp_path).needs_preparation


def test_a_grid_may_be_ordered_by_a_partition_of_any_number_of_parts(tmp_path: Path) -> None:
    settings = ["train.algorithm=summa", "shards.grid=2,2", "shards.permutation=partition", "partition.parts=5"]
    assignment = check_recipe(tmp_path, *settings)
    assert set(run(assignment)) == names(assignment) | _transposed(assignment)
    shards = Catalog(assignment.found.recipe.catalog)["tiny"].find("shards")
    assert shards.parameters["permutation"] == "partition"
    assert shards.parameters["parts"] == 5
    assert shards.inputs["partition"] == assignment.found.keys["partition"]


def _transposed(assignment: RecipeStages) -> set[str]:
    return {f"transpose/{info.key}" for info in Catalog(assignment.found.recipe.catalog)["tiny"].artifacts("transpose")}


@pytest.mark.parametrize(
    "extra",
    ['[vertices]\nformat = "random"\ndim = 4\nclasses = 3\n', '[vertices]\nformat = "degree-labels"\nclasses = 3\n'],
)
def test_keys_of_synthetic_vertex_data_and_directed_grid_shards_are_known_before_they_run(
    tmp_path: Path, extra: str
) -> None:
    settings = ["train.algorithm=broadcast", "shards.grid=2,3", "dataset.undirected=false", "shards.permutation=single"]
    assignment = check_recipe(tmp_path, *settings, text=RECIPE + extra)
    assert [stage.name for stage in assignment.stages] == ["graph", "vertices", "shards"]
    made = {name for name in run(assignment) if not name.startswith("transpose/")}
    assert made == names(assignment)


def test_a_changed_parameter_redoes_what_depends_on_it_and_nothing_else(tmp_path: Path) -> None:
    before = run(check_recipe(tmp_path))
    changed = check_recipe(tmp_path, "partition.seed=5")
    assert states(changed) == {"graph": True, "vertices": True, "partition": False, "shards": False, "train": False}
    after = run(changed)
    assert len(after) == len(before) + 2
    assert before.items() <= after.items()
    assert not check_recipe(tmp_path, "train.lr=0.5").needs_preparation


@pytest.mark.slow
def test_another_source_makes_another_graph_and_everything_that_depends_on_it(tmp_path: Path) -> None:
    before = run(check_recipe(tmp_path))
    other = check_recipe(tmp_path, "source.seed=9")
    assert not any(states(other).values())
    after = run(other)
    assert before.items() <= after.items()
    assert set(after) - set(before) == names(other)
    assert after.items() >= run(check_recipe(tmp_path, "source.seed=9", catalog="fresh")).items()
    random = check_recipe(tmp_path, "vertices.format=random", "train.algorithm=broadcast", "shards.grid=2,2")
    assert states(random) == {"graph": True, "vertices": False, "shards": False, "train": False}
    assert names(random) <= set(run(random))
    assert all(states(check_recipe(tmp_path))[stage] for stage in ("graph", "vertices", "partition", "shards"))


def test_the_name_of_a_run_on_other_shards_is_refused(tmp_path: Path) -> None:
    assignment = check_recipe(tmp_path, "train.run=mine")
    run(assignment)
    run_of(assignment).start(assignment.found.config.to_json(), 0)
    assert check_recipe(tmp_path, "train.run=mine")
    with pytest.raises(ExistsError, match=r"--set train.run="):
        check_recipe(tmp_path, "train.run=mine", "source.seed=9")
    with pytest.raises(ExistsError, match=r"lr 0.01 \(now 0.5\); .* --restart"):
        check_recipe(tmp_path, "train.run=mine", "train.lr=0.5")


def test_a_training_that_is_done_or_another_one_is_started_over_on_request(tmp_path: Path) -> None:
    run(check_recipe(tmp_path, "train.run=mine"))
    pretend_trained(check_recipe(tmp_path, "train.run=mine"), 4)
    assert states(check_recipe(tmp_path, "train.run=mine"))["train"]
    for setting in ("train.lr=0.01", "train.lr=0.5", "train.epochs=2"):
        request = RecipeRequest(
            tmp_path / "recipe.toml", tmp_path / "catalog", ("train.run=mine", setting), restart=True
        )
        assignment = request.check()
        done = {stage.name: stage.is_done for stage in assignment.stages}
        assert (assignment.found.restart, done["train"]) == (True, False)
        assert not assignment.needs_preparation
        with pytest.raises(InputError, match=r"but the stages to run are graph, vertices$"):
            replace(request, last="vertices").check()


def run_of(assignment: RecipeStages) -> Run:
    return Run(assignment.found.recipe.dataset_path / "runs" / assignment.found.config.run_name)


def pretend_trained(assignment: RecipeStages, epochs: int) -> Run:
    """Write the files that a training of so many epochs leaves, with made-up weights."""
    run = run_of(assignment)
    run.start(assignment.found.config.to_json(), 0, assignment.found.keys)
    write_checkpoint(run.checkpoints, Checkpoint(epochs, {"weight": np.zeros(2)}, {}))
    run.finish({"epochs": epochs})
    return run


def test_fewer_epochs_are_another_run_and_more_epochs_continue_a_run(tmp_path: Path) -> None:
    assignment = check_recipe(tmp_path)
    run(assignment)
    trained = pretend_trained(assignment, 4)
    fewer = check_recipe(tmp_path, "train.epochs=2")
    assert fewer.found.config.run_name == f"{trained.name}-2"
    assert not states(fewer)["train"]
    pretend_trained(fewer, 2)
    assert states(check_recipe(tmp_path, "train.epochs=2"))["train"]
    assert states(check_recipe(tmp_path))["train"]
    more = check_recipe(tmp_path, "train.epochs=6")
    assert (more.found.config.run_name, states(more)["train"]) == (trained.name, False)


def test_the_name_of_an_unnamed_run_is_part_of_the_format(tmp_path: Path) -> None:
    assert check_recipe(tmp_path).found.config.run_name == "gcn-p2p-3-51f68c1a"


def test_a_run_with_a_name_is_not_cut_to_fewer_epochs(tmp_path: Path) -> None:
    assignment = check_recipe(tmp_path, "train.run=mine")
    run(assignment)
    pretend_trained(assignment, 4)
    assert check_recipe(tmp_path, "train.run=mine", "train.epochs=6")
    with pytest.raises(ExistsError, match=r"4 epochs .* 2; .* --set"):
        check_recipe(tmp_path, "train.run=mine", "train.epochs=2")


def test_a_stale_output_file_is_rewritten_without_starting_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "classes.npy"
    run(check_recipe(tmp_path))
    assignment = RecipeRequest(tmp_path / "recipe.toml", tmp_path / "catalog", (f"predict.out={out}",)).check()
    trained = pretend_trained(assignment, 4)
    predict_nothing(trained, 120)
    out.write_bytes(b"something else")
    again = RecipeRequest(tmp_path / "recipe.toml", tmp_path / "catalog", (f"predict.out={out}",))
    monkeypatch.setattr("subprocess.Popen", None)
    assert not run_recipe(again, NewRanks(), Display()).needs_ranks
    assert np.array_equal(np.load(out), np.zeros(120, np.int32))


def predict_nothing(trained: Run, num_vertices: int) -> None:
    folder = trained.predictions_aside()
    label = np.zeros(num_vertices, np.int32)
    trained.publish_predictions([write_array(folder, "label", label, ("vertex",))], {"epoch": 4, "num_classes": 4})


def test_the_saved_recipe_runs_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edges.txt").write_text("0 1\n1 2\n2 0\n3 1\n")
    text = '[dataset]\nname = "tiny"\n[source]\npath = "edges.txt"\n[vertices]\nformat = "random"\n'
    (tmp_path / "recipe.toml").write_text(text + '[train]\n[predict]\nout = "classes.npy"\n')
    assignment = RecipeRequest(Path("recipe.toml"), Path("catalog")).check()
    Catalog(assignment.found.recipe.catalog).create("tiny")
    save_recipe(assignment.found)
    saved = RecipeRequest(run_of(assignment).path / SAVED_RECIPE, Path("other"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert saved.check().found.keys == assignment.found.keys
    assert saved.check().found.recipe.predict == PredictSection(out=str(tmp_path / "classes.npy"))


def test_a_run_that_another_process_is_writing_is_left_alone(tmp_path: Path) -> None:
    assignment = check_recipe(tmp_path)
    run(assignment)
    with sole_writer(run_of(assignment)):
        for begin in (lambda: save_recipe(assignment.found), lambda: launch(assignment.found.config)):
            with pytest.raises(ExistsError, match="another process is training it"):
                begin()
    assert not run_of(assignment).path.exists()


def test_a_run_killed_after_every_task_and_restarted_gives_the_same_bytes(tmp_path: Path) -> None:
    expected = run(check_recipe(tmp_path))
    command = [*rank_command(), str(PROGRAM), str(tmp_path / "recipe.toml"), str(tmp_path / "killed")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    kills, code = map(int, done.stdout.split())
    assert code == 0
    assert kills >= 10
    assert digests(tmp_path / "killed") == expected


def test_data_that_cannot_be_trained_on_is_reported_before_partitioning(tmp_path: Path) -> None:
    for _ in range(2):  # once when it is made, once when it is found
        with pytest.raises(InputError, match=r"classes = 3, but the labels go up to 3; set classes to 4"):
            run(check_recipe(tmp_path, "vertices.classes=3"))
    assert RecipeRequest(tmp_path / "recipe.toml", tmp_path / "catalog", ("vertices.classes=3",), last="graph").check()
    edges = tmp_path / "edges.txt"
    edges.write_text("0 1\n1 2\n2 0\n3 1\n")
    np.save(tmp_path / "x.npy", np.ones((4, 2), np.float32))
    np.save(tmp_path / "y.npy", np.zeros(4, np.int32))
    np.save(tmp_path / "none.npy", np.zeros(4, np.uint8))
    base = f'[dataset]\nname = "bare"\n[source]\npath = "{edges}"\n'
    for extra, message in [
        ("", "comes without vertex data"),
        (f'[vertices]\nformat = "files"\nfeature = "{tmp_path}/x.npy"\n', "label, split missing"),
    ]:
        with pytest.raises(InputError, match=message):
            run(check_recipe(tmp_path, f"dataset.name=bare{len(extra)}", text=base + extra))
    # Missing vertex data is reported before anything runs, unless only the graph is wanted.
    with pytest.raises(InputError, match="comes without vertex data"):
        check_recipe(tmp_path, text=base)
    assert RecipeRequest(tmp_path / "recipe.toml", tmp_path / "catalog", last="graph").check().needs_preparation
    files = "".join(
        f'{key} = "{tmp_path}/{name}.npy"\n'
        for key, name in zip(("feature", "label", "split"), ("x", "y", "none"), strict=True)
    )
    with pytest.raises(InputError, match="no vertex to train on"):
        run(check_recipe(tmp_path, "dataset.name=split", text=f'{base}[vertices]\nformat = "files"\n{files}'))
    with pytest.raises(GnnloomError, match="200"):
        run(check_recipe(tmp_path, "train.ranks=200", catalog="parts"))


@pytest.mark.slow
def test_data_without_features_can_be_trained_on_if_features_are_learned(tmp_path: Path) -> None:
    edges = tmp_path / "edges.txt"
    edges.write_text("0 1\n1 2\n2 0\n3 1\n")
    np.save(tmp_path / "label.npy", np.arange(4) % 2)
    np.save(tmp_path / "split.npy", np.ones(4, np.uint8))
    files = "".join(f'{key} = "{tmp_path}/{key}.npy"\n' for key in ("label", "split"))
    text = f'[dataset]\nname = "bare"\n[source]\npath = "{edges}"\n[vertices]\nformat = "files"\n{files}'
    with pytest.raises(InputError, match=r"feature .*embed in \[train\]"):
        run(check_recipe(tmp_path, text=text))
    assignment = check_recipe(tmp_path, "train.embed=3", "train.epochs=2", text=text)
    run(assignment)
    assert launch(assignment.found.config)["epochs"] == 2


@pytest.mark.parametrize("name", ["rmat", "snap", "ogbn-papers100m"])
def test_bundled_recipes_prepare_at_a_small_size(tmp_path: Path, name: str) -> None:
    edges = tmp_path / "edges.txt"
    edges.write_text("".join(f"{3 * k}\t{3 * (7 * k % 50)}\n" for k in range(50)))
    settings = {
        "rmat": ("source.scale=7", "train.ranks=4", "shards.grid=4,4"),
        "snap": (f"source.path={edges}", "partition.method=random"),
        "ogbn-papers100m": (f"source.path={write_ogb_binary_folder(tmp_path / 'papers')}", "train.ranks=4"),
    }
    assignment = RecipeRequest(Path(name), tmp_path / "catalog", settings[name], last="shards").check()
    assert len(digests_of(assignment)) == len(assignment.stages)


def digests_of(assignment: RecipeStages) -> dict[str, str]:
    return {name: digest for name, digest in run(assignment).items() if not name.startswith("transpose/")}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "classes"), [("cora", 7), ("ogbn-products", 47)])
def test_recipes_for_ogb_folders_prepare_a_real_graph(
    tmp_path: Path, shared_data: Path, name: str, classes: int
) -> None:
    settings = (f"source.path={shared_data / 'cora'}", "partition.method=random", "train.ranks=2")
    assignment = RecipeRequest(Path(name), tmp_path, settings, last="shards").check()
    run(assignment)
    vertices = Catalog(tmp_path)[assignment.found.recipe.dataset.name].vertices()
    assert (vertices.num_vertices, vertices.num_features, vertices.num_classes) == (2708, 1433, 7)
    assert assignment.found.recipe.vertices.most_classes == classes


@pytest.mark.slow
def test_a_running_scheduler_is_used_through_its_file(tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    file = tmp_path / "scheduler.json"
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as local,
        Client(local) as client,
    ):
        client.write_scheduler_file(str(file))
        recipe = check_recipe(tmp_path).found.recipe
        with open_cluster(recipe.cluster.options(str(file))) as cluster:
            assert cluster.workers == 1
            assert sorted(cluster.map(abs, [-1, -2])) == [1, 2]
    with pytest.raises(InputError, match="expected local, mpi, an address"):
        recipe.cluster.options(str(tmp_path / "none.json"))
