"""Errors in a recipe are reported before anything runs, with the line and what is allowed there."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.storage.errors import GnnloomError, InputError, NotFoundError
from gnnloom.workflows.recipe.bundled import RECIPES
from gnnloom.workflows.recipe.read import read_recipe
from gnnloom.workflows.recipe.recipe import Recipe
from gnnloom.workflows.recipe.request import RecipeRequest
from gnnloom.workflows.recipe.stages import STAGE_NAMES
from gnnloom.workflows.recipe.stages.all_stages import find_stages
from gnnloom.workflows.run.slurm import write_jobs

GOOD = """\
[dataset]
name = "tiny"

[source]
format = "sbm"
vertices = 100
edges = 500

[train]
ranks = 2
hidden = [8]
lr = 0.01
"""
CATALOG = Path("catalog")
BUNDLED = sorted(path.stem for path in RECIPES.glob("*.toml"))


def read(folder: Path, text: str = GOOD, *settings: str) -> Recipe:
    path = folder / "recipe.toml"
    path.write_text(text)
    return read_recipe(path, folder / "catalog", settings)


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 5000])
def test_values_that_python_refuses_are_not_valid_toml(tmp_path: Path, value: str) -> None:
    with pytest.raises(InputError, match=r"recipe\.toml: "):
        read(tmp_path, GOOD.replace("100", value))
    with pytest.raises(InputError, match="vertices"):
        read(tmp_path, GOOD, f"source.vertices={value}")


HEX = f"0x{'f' * 5000}"
EXTREME = (
    HEX, f"[{HEX}]", f"1{'0' * 400}", f"1{'0' * 30}", "1e400", "-inf", "nan", "-1", "1e308", '""',
    f'"{"x" * 100_000}"', "[]", "[[[1]]]", "{a = 1}", "1979-05-27",
)  # fmt: skip


@pytest.mark.parametrize("key", ["[train] ranks", "[train] lr", "[train] hidden", "[source] seed", "[vertices] dim"])
def test_an_extreme_value_is_read_or_is_one_error_that_names_the_line(tmp_path: Path, key: str) -> None:
    for value in EXTREME:
        _check_extreme(tmp_path, key, value)


def _check_extreme(tmp_path: Path, key: str, value: str) -> None:
    section, name = key.split()
    lines = [line for line in GOOD.splitlines() if not line.startswith(f"{name} =")]
    text = "\n".join(lines) + ('\n[vertices]\nformat = "random"' if section == "[vertices]" else "")
    try:
        read(tmp_path, text.replace(section, f"{section}\n{name} = {value}", 1))
    except InputError as error:
        assert re.match(rf"\S*recipe\.toml, line \d+: .*{name}", str(error))  # noqa: PT017 - some values are valid
        assert value != HEX or "a number of thousands of digits" in str(error)  # noqa: PT017
    else:
        assert value != HEX


@pytest.mark.parametrize(
    ("wrong", "line", "message"),
    [
        (GOOD.replace("hidden", "hiden"), 11, "did you mean hidden"),
        (GOOD.replace("[source]", "[sorce]"), 5, "did you mean source"),
        (GOOD.replace("vertices", "vertexes"), 6, "did you mean vertices"),
        (GOOD.replace("0.01", '"fast"'), 12, "expected a number"),
        (GOOD.replace("ranks = 2", "ranks = true"), 10, "expected a whole number"),
        (GOOD.replace("ranks = 2", "ranks = 2.5"), 10, "expected a whole number"),
        (GOOD.replace("[8]", '["wide"]'), 11, "expected a list"),
        (GOOD.replace('"tiny"', "7"), 2, "expected a text in quotes"),
        (GOOD.replace("0.01", "-1.0"), 12, "lr -1.0: expected a number from 0"),
        (GOOD.replace('"sbm"', '"sbn"'), 5, "format 'sbn': expected one of sbm"),
        (GOOD.replace("vertices = 100", "scale = 4"), 6, "scale: format sbm has no such key"),
        (GOOD + "[partition]\nparts = 3\n", 14, "parts = 3, but [train] ranks = 2"),
        (GOOD + '[partition]\nmethod = "magic"\n', 14, "method 'magic': expected one of"),
        (GOOD + '[shards]\nlayout = "grid"\n', 14, "algorithm p2p reads row shards"),
        (GOOD + '[cluster]\nmemory = "much"\n', 14, "not a size"),
        (GOOD + '[vertices]\nformat = "random"\nlabel = "y.npy"\n', 15, "label: format random has no such key"),
        (GOOD + '[predict]\nout = "classes.txt"\n', 14, "expected a name that ends in"),
        (GOOD + "[predict]\nsmooth_alpha = 0.5\n", 14, "needs smooth labels or correct"),
        (GOOD.replace("[train]", "[train"), 9, "not valid TOML"),
        ("top = 1\n" + GOOD, 1, "is outside a section"),
        (
            GOOD.replace("[train]", "[[train]]"),
            9,
            "write [train], as there is one section of each name",
        ),
        (GOOD + "[train.deep]\nlr = 1.0\n", 13, "[train] has no key 'deep'"),
        (GOOD.replace("[train]", '["train"]').replace("ranks", "rank"), 10, "did you mean ranks"),
        (GOOD.replace("vertices = 100", "vertices = 0"), 6, "vertices 0: expected at least 1"),
        (GOOD + '[vertices]\nformat = "random"\ndim = 0\n', 15, "dim 0: expected at least 1"),
        (GOOD + "[vertices]\nclasses = -1\n", 14, "classes -1: expected at least 1"),
        (GOOD.replace("[8]\nlr", f"[8]\nseed = {10**20}\nlr"), 12, "expected at most 2^63 - 1"),
        (GOOD.replace("[8]\nlr", f"[8]\nthreads = {10**6}\nlr"), 12, "expected at most 4096"),
        (
            GOOD.replace("lr = 0.01", 'algorithm = "summa"') + '[partition]\nparts = "x"\n',
            14,
            '[partition] parts = "x": expected a whole number',
        ),
        (GOOD + '[slurm]\nmemory = "1M"\n', 14, "memory 1M: expected at least 1M for each of 2 cores"),
        (GOOD.replace('name = "tiny"\n', ""), 1, "needs a key 'name'"),
        (GOOD + "[shards]\ngrid = [2, 2]\n", 14, "grid has no effect: algorithm p2p reads row shards; remove the key"),
        (
            GOOD.replace("lr = 0.01", 'algorithm = "summa"') + "[partition]\nparts = 7\n",
            14,
            "parts has no effect: grid shards with permutation 'double' need no partition; remove the section",
        ),
        (
            GOOD.replace("lr = 0.01", 'algorithm = "summa"') + '[shards]\nseed = 1\npermutation = "none"\n',
            14,
            "seed has no effect: permutation 'none' is not random",
        ),
        (GOOD + "summa_width = 5\n", 13, 'no such option; remove the key, or choose [train] algorithm = "summa"'),
        (GOOD + "heads = 5\n", 13, 'model gcn has no such option; remove the key, or choose [train] model = "gat"'),
        (
            GOOD + '[vertices]\nfeature = "x.npy"\n',
            14,
            'feature: the format is missing; add format = "files" or format = "keyed"',
        ),
        (GOOD.replace('format = "sbm"\n', ""), 5, 'vertices: the format is missing; add format = "sbm"'),
    ],
)
def test_an_invalid_key_is_reported_with_its_line_and_what_is_allowed(
    tmp_path: Path, wrong: str, line: int, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, wrong)
    assert f"line {line}" in str(caught.value)
    assert message in str(caught.value)


def test_predictions_may_be_smoothed(tmp_path: Path) -> None:
    recipe = read(tmp_path, GOOD + '[predict]\nsmooth = "correct"\ncorrect_scale = 20\nsmooth_alpha = 0.5\n')
    assert recipe.predict is not None
    found = recipe.predict.smoothing
    assert (found.smooth, found.smooth_steps, found.smooth_alpha, found.correct_scale) == ("correct", 50, 0.5, 20)
    again = read(tmp_path, recipe.anywhere().to_toml())
    assert again.predict == recipe.predict
    assert not read(tmp_path, GOOD + "[predict]\n").predict.smoothing.smooths  # type: ignore[union-attr]


def test_what_is_stored_with_a_run_has_no_secrets_and_what_jobs_run_has_them(tmp_path: Path) -> None:
    address, query = "https://ann:p@ss@host/graphs", "?X-Signature=topsecret&at=2030-01-01T00:00:00Z"
    text = f"""\
[dataset]
name = "tiny"

[[relations]]
path = "{address}/buys.csv{query}"
source = "user"
name = "buys"
target = "item"

[[vertices]]
type = "user"
path = "{address}/users.csv{query}"

[slurm]
setup = ["module load mpi", "export WANDB_API_KEY=topsecret X=1 AWS_SECRET_ACCESS_KEY='top secret'"]
"""
    files = f"""\
[dataset]
name = "tiny"

[source]
path = ["{address}/e.csv{query}", "local-?.csv"]

[vertices]
format = "keyed"
feature = "{address}/x.csv:age,income{query}"

[train]
"""
    for recipe in (read(tmp_path, text), read(tmp_path, files)):
        stored, run = recipe.public().to_toml(), recipe.anywhere().to_toml()
        assert re.search("topsecret|top secret|p@ss|ss@", stored) is None
        assert "topsecret" in run
        assert "https://host/graphs/" in stored
        assert read(tmp_path, stored).public() == recipe.public()
    assert "/x.csv:age,income" in stored
    assert "/local-?.csv" in stored


def test_an_empty_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 4: \[source\] path: "):
        read(tmp_path, '[dataset]\nname = "tiny"\n[source]\npath = ""\n[train]\n')


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    assert read(tmp_path, "\ufeff" + GOOD).dataset.name == "tiny"


def test_options_of_the_command_may_make_keys_of_the_file_useless(tmp_path: Path) -> None:
    recipe = read(tmp_path, GOOD + "[partition]\nparts = 2\n", "train.algorithm=summa")
    assert recipe.partition is None
    assert read(tmp_path, GOOD + 'heads = 2\nmodel = "gat"\n', "train.model=gcn").train is not None
    with pytest.raises(InputError, match=r"--set shards\.grid=2,2: \[shards\] grid .*algorithm p2p "):
        read(tmp_path, GOOD, "shards.grid=2,2", "train.algorithm=p2p")


LONG_TEXTS = """\
[dataset]
name = "tiny"

[source]
path = [
  "one.txt",  # ] not the end
  '''two
[train]
epochs = "many" \\''',
  QUOTESthree \\QUOTES
seed = ""QUOTES,
]
format = "snap"

[train]
ranks = 2
epochs = "many"
""".replace("QUOTES", '"' * 3)


def test_texts_and_lists_of_several_lines_do_not_shift_the_lines_of_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 17: \[train\] epochs"):
        read(tmp_path, LONG_TEXTS)
    # U+0085 ends no line in TOML, though it does in Python.
    with pytest.raises(InputError, match=r"line 10: \[train\] ranks"):
        read(tmp_path, GOOD.replace('name = "tiny"', 'name = "tiny"  # \x85').replace("ranks = 2", 'ranks = "2"'))


def test_the_stored_type_of_features_changes_the_vertex_data_and_what_reads_them(tmp_path: Path) -> None:
    keys = {}
    for text in (GOOD, GOOD + '[vertices]\nstore = "float32"\n', GOOD + '[vertices]\nstore = "float16"\n'):
        recipe = read(tmp_path, text)
        keys[recipe.vertices.store, len(text)] = dict(find_stages(recipe, ClusterOptions()).found.keys)
        assert read(tmp_path, recipe.to_toml()).vertices == recipe.vertices
    default, whole, half = keys.values()
    assert default == whole
    assert {name for name in whole if whole[name] != half[name]} == {"vertices", "shards"}
    # With an option of a format, that has to be named.
    with pytest.raises(InputError, match="dim:"):
        read(tmp_path, GOOD + '[vertices]\nstore = "float16"\ndim = 3\n')
    with pytest.raises(InputError, match=r"line 14: \[vertices\] store 'bfloat16': .*float32, float16"):
        read(tmp_path, GOOD + '[vertices]\nstore = "bfloat16"\n')


def test_a_recipe_without_training_stops_at_the_shards(tmp_path: Path) -> None:
    text = GOOD.partition("[train]")[0]
    recipe = read(tmp_path, text + "[partition]\nparts = 3\n")
    assert recipe.train is None
    workload = find_stages(recipe, ClusterOptions())
    assert [stage.name for stage in workload.stages] == ["graph", "vertices", "partition", "shards"]
    assert read(tmp_path, recipe.to_toml()).partition == recipe.partition
    grid = read(tmp_path, text + "[shards]\ngrid = [2, 3]\n")
    assert (grid.shards.layout, grid.partition) == ("grid", None)
    assert read(tmp_path, grid.to_toml()).shards == grid.shards
    with pytest.raises(InputError, match=r"\[predict\] .*\[train\]"):
        read(tmp_path, text + "[predict]\n")
    read(tmp_path, text)
    with pytest.raises(InputError, match=r"no section \[train\]"):
        write_jobs(RecipeRequest(tmp_path / "recipe.toml", tmp_path), tmp_path / "jobs")


def test_a_setting_overrides_the_file_and_is_read_as_the_type_of_its_key(tmp_path: Path) -> None:
    settings = ["train.lr=1", "train.hidden=16,16", "train.bias=false", "dataset.name=7", "source.seed=3"]
    recipe = read(tmp_path, GOOD, *settings)
    assert (recipe.training.optimization.lr, recipe.training.model.hidden, recipe.training.model.bias) == (
        1.0,
        (16, 16),
        False,
    )
    assert (recipe.dataset.name, recipe.source.given["seed"]) == ("7", 3)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.epoch=3", r"did you mean epochs\?"),
        ("epochs=3", "section.key=value"),
        ("train.epochs=x", "a whole number"),
        ("dataset.name=Tiny", "dataset name 'Tiny'"),
    ],
)
def test_an_invalid_setting_is_named(tmp_path: Path, setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path, GOOD, setting)
    assert f"--set {setting}" in str(caught.value)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="quick-start"):
        read_recipe(tmp_path / "none.toml", CATALOG)
    files = GOOD.replace('"sbm"', '"snap"').replace("vertices = 100", 'path = "none.txt"').replace("edges = 500\n", "")
    with pytest.raises(NotFoundError, match=r"recipe\.toml: \[source\] .*none\.txt"):
        find_stages(read(tmp_path, files), ClusterOptions())
    tables = GOOD + '[vertices]\nformat = "files"\nfeature = "none.npy"\n'
    with pytest.raises(NotFoundError, match=r"recipe\.toml: \[vertices\] .*none\.npy"):
        find_stages(read(tmp_path, tables), ClusterOptions())


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_recipe_and_its_resolved_form_are_equal(tmp_path: Path, name: str) -> None:
    recipe = read_recipe(Path(name), tmp_path)
    saved = tmp_path / "saved.toml"
    saved.write_text(recipe.to_toml())
    again = read_recipe(saved, tmp_path / "elsewhere")
    assert dataclasses.replace(again, source_name=recipe.source_name) == recipe


def test_stages_in_the_wrong_order_or_before_their_inputs_are_refused(tmp_path: Path) -> None:
    workload = find_stages(read(tmp_path), ClusterOptions())
    assert [stage.name for stage in workload.stages] == [
        name for name in STAGE_NAMES[:-1] if name not in {"links", "samples", "propagated", "transpose"}
    ]
    assert [stage.name for stage in workload.within(None, "vertices").stages] == ["graph", "vertices"]
    with pytest.raises(GnnloomError, match="graph, vertices, partition, shards not done yet"):
        workload.within("train", None)
    with pytest.raises(InputError, match="comes before"):
        workload.within("shards", "graph")
    with pytest.raises(InputError, match="the stages of this recipe"):
        workload.within(None, "predict")


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(
        '[dataset]\nname = "Tiny"\n[source]\nformat = "sbm"\nedges = "many"\n[trian]\n[train]\nlrr = 1\nepochs = "x"\n'
    )
    with pytest.raises(InputError) as found:
        read_recipe(path, tmp_path)
    heading, *lines = str(found.value).splitlines()
    assert heading == "5 mistakes:"
    assert [int(line.partition("line ")[2].partition(":")[0]) for line in lines] == [6, 2, 5, 8, 9]
    path.write_text(
        '[dataset]\nname = "tiny"\n[source]\nformat = "sbm"\nvertices = 9\nedges = 9\n[shards]\ngrid = [2, 2]\n'
        "[partition]\nparts = 4\n[train]\nranks = 3\nheads = 2\nsumma_width = 64\n[samples]\nepochs = 3\n"
    )
    with pytest.raises(InputError) as found:
        read_recipe(path, tmp_path)
    lines = str(found.value).splitlines()[1:]
    assert sorted(int(line.partition("line ")[2].partition(":")[0]) for line in lines) == [8, 10, 13, 14, 16]
