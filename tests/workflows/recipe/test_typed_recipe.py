"""`[[relations]]` and `[[vertices]]` of a recipe store a graph with types, as `gnnloom ingest --relation` does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import gnnloom
from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.shards.projection import project_typed_row_shards
from gnnloom.storage import Catalog
from gnnloom.storage.errors import GnnloomError
from gnnloom.workflows.cli.main import cli
from gnnloom.workflows.recipe.read import read_recipe
from gnnloom.workflows.recipe.stages.all_stages import find_stages
from support.lone_training import install
from support.recipes import MpiJob, run_arguments, run_here

RECIPE = """
[dataset]
name = "shop"
unknown = "drop"

[[relations]]
source = "user"
name = "buys"
target = "item"
path = "clicks.csv"
columns = ["user", "item"]
weight = "amount"
delimiter = ";"

[[relations]]
source = "user"
name = "knows"
target = "user"
path = ["knows.csv", "more.csv"]

[[vertices]]
type = "user"
path = "users.csv"
id = "id"

[cluster]
workers = 0
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with tables."""
    monkeypatch.chdir(tmp_path)
    Path("clicks.csv").write_text("user;item;amount\n1;a;2\n9;b;3\n2;a;5\n")
    Path("knows.csv").write_text("1,2\n2,1\n")
    Path("more.csv").write_text("1,3\n")
    Path("users.csv").write_text("name,id\nann,1\nbob,2\ncy,3\n")
    return tmp_path


def run(text: str, *words: str, expected: int = 0) -> Any:
    Path("shop.toml").write_text(text)
    done = CliRunner().invoke(cli, ["--catalog", "catalog", "run", "shop.toml", *words])
    assert done.exit_code == expected, done.output
    return done


def plan(text: str) -> list[dict[str, Any]]:
    """The stages of a recipe, as `--plan --json` shows them."""
    stages: list[dict[str, Any]] = json.loads(run(text, "--plan", "--json").stdout)["stages"]
    return stages


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_a_recipe_plans_runs_and_finds_a_graph_with_types() -> None:
    (planned,) = plan(RECIPE)
    assert (planned["stage"], planned["done"]) == ("graph", False)
    assert planned["memory"] > 0
    found = json.loads(run(RECIPE, "--json").stdout)
    assert list(found["keys"]) == ["graph"]
    graph = Catalog(Path("catalog"))["shop"].typed_graph()
    assert graph.artifact.key == found["keys"]["graph"] == planned["key"]
    assert graph.relation("buys").to_scipy().toarray().tolist() == [[2.0, 5.0, 0.0], [0.0, 0.0, 0.0]]
    assert graph.relation("buys").facts["left_out"] == 1
    assert graph.relation("knows").nnz == 3
    (again,) = json.loads(run(RECIPE, "--dry-run", "--json").stdout)["stages"]
    assert again["done"]
    # The same graph as from tables in Python.
    tables = {
        ("user", "buys", "item"): ("clicks.csv", ["user", "item", "amount as weight"]),
        ("user", "knows", "user"): "knows.csv",
    }
    other = gnnloom.ingest("other", relations=tables, vertices={"user": "users.csv:id"}, unknown="drop", workers=0)
    assert other.typed_graph().relation("buys").nnz == graph.relation("buys").nnz
    columns = RECIPE.replace('"drop"', '"drop"\nmerge = "keep"').replace(
        'weight = "amount"', 'features = ["amount"]\nlabel = "item"'
    )
    run(columns, "--json")
    (chosen,) = [info.key for info in Catalog(Path("catalog"))["shop"].artifacts() if info.key != graph.artifact.key]
    buys = Catalog(Path("catalog"))["shop"].typed_graph(chosen).relation("buys")
    assert buys.column("feature").tolist() == [[2], [5]]
    assert np.array(buys.classes)[buys.column("label")].tolist() == ["a", "a"]
    # A change of the recipe stores another graph, and the plan says how both differ.
    changed = RECIPE.replace('"drop"', '"add"')
    assert "unknown" in run(changed, "--plan").output
    assert run(changed, "--json").exit_code == 0
    assert len(Catalog(Path("catalog"))["shop"].artifacts()) == 3
    (row,) = json.loads(run(RECIPE, "--set", "relations.2.path=knows.csv", "--dry-run", "--json").stdout)["stages"]
    assert not row["done"]


BY_ROW = """
[dataset]
name = "places"

[[relations]]
source = "*"
name = "*"
target = "*"
path = "facts.tsv"
columns = ["1", "3"]
name_column = "2"

[[vertices]]
type = "*"
path = "places.tsv"
id = "id"
type_column = "kind"

[cluster]
workers = 0
"""


@pytest.mark.usefixtures("folder")
def test_rows_may_name_relations_and_types() -> None:
    Path("facts.tsv").write_text("rome\tin\titaly\nitaly\tborders\tfrance\n")
    Path("places.tsv").write_text("id\tkind\nrome\tcity\nitaly\tcountry\nfrance\tcountry\n")
    run(BY_ROW, "--json")
    graph = Catalog(Path("catalog"))["places"].typed_graph()
    assert [each.edge_type for each in graph.relations] == [
        ("country", "borders", "country"),
        ("city", "in", "country"),
    ]


@pytest.mark.usefixtures("folder")
def test_types_of_rows_have_features_with_what_fills_them() -> None:
    Path("facts.tsv").write_text("rome\tin\titaly\nitaly\tborders\tfrance\n")
    Path("places.tsv").write_text("id\tkind\tpeople\nrome\tcity\t3\nitaly\tcountry\t\nfrance\tcountry\t68\n")
    features = 'type_column = "kind"\nfeatures = ["people else 59"]'
    missing = run(BY_ROW.replace('type_column = "kind"', features.replace(" else 59", "")), expected=1)
    assert "places.tsv, line 3: column people" in str(missing.exception)
    run(BY_ROW.replace('type_column = "kind"', features), "--json")
    dataset = Catalog(Path("catalog"))["places"]
    assert dataset.vertices(of_type="country").feature().tolist() == [[68], [59]]
    assert dataset.vertices(of_type="city").feature().tolist() == [[3]]
    done = plan(BY_ROW.replace('type_column = "kind"', features))
    assert [each["done"] for each in done] == [True]
    # Later stages read the data of types that are known once the graph is stored.
    later = "[partition]\nparts = 2\n\n[shards]\n\n[cluster]"
    text = BY_ROW.replace('type_column = "kind"', features).replace("[cluster]", later)
    planned = plan(text)
    assert [each["done"] for each in planned][:2] == [True, False]
    elsewhere = run(text.replace('"places"', '"others"'), "--dry-run", "--json", expected=1)
    assert "type_column" in str(elsewhere.exception)


LINKS = '[links]\nrelation = "buys"\nvalid = 0.2\ntest = 0.2\n'


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_a_recipe_holds_edges_of_a_relation_out() -> None:
    text = RECIPE.replace("[cluster]", f"{LINKS}[cluster]")
    rng = np.random.default_rng(1)
    rows = zip(rng.integers(1, 4, 60).tolist(), rng.integers(0, 9, 60).tolist(), strict=True)
    Path("clicks.csv").write_text("user;item;amount\n" + "".join(f"{user};i{item};1\n" for user, item in rows))
    planned = plan(text)
    assert [each["stage"] for each in planned] == ["graph", "links"]
    assert all(each["memory"] > 0 and not each["done"] for each in planned)
    found = json.loads(run(text, "--json").stdout)
    assert list(found["keys"]) == ["graph", "links"]
    dataset = Catalog(Path("catalog"))["shop"]
    links = dataset.links(found["keys"]["links"])
    again = gnnloom.draw_links("shop", relation="buys", valid=0.2, test=0.2, workers=0, catalog="catalog")
    assert again.artifact.key == links.artifact.key
    done = plan(text)
    assert all(each["done"] for each in done)
    # The graph without held-out edges is a part of the stage.
    message = dataset.typed_graph(links.message_graph).artifact.path
    message.rename(message.with_name(".away"))
    assert [each["done"] for each in plan(text)] == [True, False]


SHARDS = '[partition]\nparts = 2\nmethod = "random"\nbalance = "user"\nreplicate = ["item"]\nreverse = {}\n[shards]\n'


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.usefixtures("folder")
def test_a_recipe_partitions_and_shards_a_graph_with_types(reverse: bool) -> None:
    more = SHARDS.format(str(reverse).lower())
    text = RECIPE.replace("[cluster]", f"{LINKS}{more}[cluster]").replace('id = "id"', 'id = "id"\nfeatures = ["age"]')
    Path("clicks.csv").write_text("user;item;amount\n" + "".join(f"{k % 3 + 1};{k % 10};1\n" for k in range(15)))
    Path("users.csv").write_text("id,age\n1,20\n2,30\n3,40\n")
    planned = plan(text)
    assert [each["stage"] for each in planned] == ["graph", "links", "partition", "shards"]
    assert all(each["memory"] > 0 and each["disk"] > 0 for each in planned)
    names = [[phase["phase"] for phase in each["phases"]] for each in planned]
    assert "unite relations" in names[2]
    assert "route rows" in names[3]
    found = json.loads(run(text, "--json").stdout)["keys"]
    assert found == {each["stage"]: each["key"] for each in planned}
    dataset = gnnloom.Catalog("catalog")["shop"]
    graph, shards = dataset.typed_graph(dataset.links().message_graph), dataset.typed_row_shards(2)
    assert shards.artifact.inputs["graph"] == graph.artifact.key
    assert ("rev_buys" in [each.name for each in shards.relations]) == reverse
    assert "feature" in shards.shard(0).vertex_names("user")
    assert [each.problem for each in dataset.verify() if each.problem] == []
    # The same artifacts as from commands, which find them; a second run does nothing.
    links = dataset.links()
    options: Any = {"method": "random", "balance": "user", "reverse": reverse, "replicate": ["item"]}
    given = gnnloom.partition("shop", 2, **options, links=links, catalog="catalog")
    assert given.artifact.key == found["partition"]
    assert gnnloom.shard("shop", 2, links=links, catalog="catalog", workers=0).artifact.key == found["shards"]
    before = {path: path.stat().st_mtime_ns for path in Path("catalog").rglob("*") if path.is_file()}
    assert all(each["done"] for each in plan(text))
    run(text)
    assert before == {path: path.stat().st_mtime_ns for path in Path("catalog").rglob("*") if path.is_file()}
    # What is left to do is counted with the sizes of what is stored.
    dataset.remove_artifact("shards", found["shards"])
    *_, left = plan(text)
    assert not left["done"]
    projected = project_typed_row_shards(dataset, given, 1)
    assert sum(phase["tasks"] for phase in left["phases"]) == projected.tasks
    assert (left["memory"], left["disk"]) == (projected.peak_memory, projected.output_bytes)
    run(text, "--from", "shards")
    assert dataset.typed_row_shards(2).artifact.key == found["shards"]


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_a_job_of_ranks_partitions_and_shards_a_graph_with_types_also_after_a_kill() -> None:
    Path("shop.toml").write_text(RECIPE.replace("[cluster]", f"{SHARDS.format('true')}[cluster]"))
    here = run_here(run_arguments("shop.toml", Path("here").absolute()))
    arguments = run_arguments("shop.toml", Path("job").absolute())
    job = MpiJob(3, arguments)
    job.wait_until_logged("shards: begins")
    job.kill()
    job.wait_until_gone()
    code, out, log = MpiJob(3, arguments).finish()
    assert code == 0, log
    assert {name: json.loads(out)[name] for name in ("keys", "digests")} == {
        name: here[name] for name in ("keys", "digests")
    }
    assert list(here["keys"]) == ["graph", "partition", "shards"]


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_a_recipe_cuts_a_graph_with_types_into_a_grid() -> None:
    text = RECIPE.replace("[cluster]", "[shards]\ngrid = [2, 2]\n[cluster]")
    planned = plan(text)
    assert [each["stage"] for each in planned] == ["graph", "shards"]
    assert all(each["memory"] > 0 and each["phases"] for each in planned[1:])
    found = json.loads(run(text, "--json").stdout)["keys"]
    made = gnnloom.shard("shop", grid=(2, 2), catalog="catalog", workers=0)
    assert found["shards"] == made.artifact.key == planned[1]["key"]
    assert all(each["done"] for each in plan(text))


@pytest.mark.parametrize(
    ("more", "stages"),
    [
        (LINKS, ["graph", "links"]),
        (SHARDS.format("true"), ["graph", "partition", "shards"]),
        ("[partition]\nparts = 3\n", ["graph", "partition"]),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_saved_recipe_with_tables_is_the_same_recipe(more: str, stages: list[str]) -> None:
    Path("shop.toml").write_text(RECIPE.replace("[cluster]", f"{more}[cluster]"))
    recipe = read_recipe(Path("shop.toml"), Path("catalog"))
    Path("elsewhere").mkdir()
    saved = Path("elsewhere") / "saved.toml"
    saved.write_text(recipe.anywhere().to_toml())
    again, known = (find_stages(each, ClusterOptions()) for each in (read_recipe(saved, Path("other")), recipe))
    assert [each.name for each in known.stages] == stages
    assert again.found.keys == known.found.keys


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('target = "user"', 'taget = "user"', r"line 18: \[relations\.2\] has no key 'taget'; did you mean target"),
        ('target = "user"\n', "", r"line 15: \[relations\.2\] needs a key 'target'"),
        ('name = "knows"', 'name = "buys"', "two relations have this name"),
        ('name = "knows"', 'name = "co-buys"', r"line 17: \[relations\.2\] name: .*co_buys"),
        ('type = "user"', 'type = "users"', r"line 22: \[vertices\.1\] type: .*did you mean user"),
        ('target = "user"', 'target = "usser"', r"line 18: \[relations\.2\] target: .*did you mean user"),
        ('columns = ["user", "item"]\n', "", r"line 11: \[relations\.1\] weight: .*columns"),
        ('weight = "amount"', 'weight = "amount"\ntime = "amount"', "--merge keep"),
        ('delimiter = ";"', 'format = "ogb"', r"line 13: \[relations\.1\] format 'ogb'"),
        ('path = "users.csv"', 'path = "missing.csv"', "missing.csv"),
        ("[[vertices]]", "[vertices]", r"line 21: \[vertices\]: .*\[\[vertices\]\]"),
        ("[cluster]", "[train]\n[cluster]", r"line 26: \[train\]: .*name of_type"),
        ("[cluster]", '[train]\nof_type = "user"\n[shards]\n[cluster]', r"line 28: \[shards\]: .*remove"),
        ("[cluster]", '[shards]\npermutation = "partition"\n[cluster]', r"line 27: \[shards\] permutation"),
        ("[cluster]", '[shards]\nreorder = "degree"\n[cluster]', r"line 27: \[shards\] reorder"),
        (
            "[cluster]",
            '[partition]\nbalance = "itme"\n[cluster]',
            r"line 27: \[partition\] balance: .*did you mean item",
        ),
        ("[cluster]", '[partition]\nreplicate = ["itme"]\n[cluster]', r"line 27: \[partition\] replicate: .*item"),
        ("[cluster]", "[samples]\nepochs = 2\n[cluster]", r"line 27: \[samples\] epochs: .*\[train\]"),
        ("[cluster]", "[propagate]\n[cluster]", r"line 26: \[propagate\]: .*remove"),
        ("[cluster]", "[links]\n[cluster]", r"line 26: \[links\]: .*relation: buys, knows"),
        ("[cluster]", '[links]\nrelation = "buy"\n[cluster]', r"line 27: \[links\] relation: .*did you mean buys"),
        ("[cluster]", '[source]\npath = "x.csv"\n[cluster]', r"line 26: \[source\]"),
        ('unknown = "drop"', "undirected = true", r"line 4: \[dataset\] undirected"),
        ('unknown = "drop"', 'unknown = "keep"', r"line 4: .*unknown"),
        ("[[relations]]", "[relations]", "relations"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_mistakes_name_the_line(before: str, after: str, message: str) -> None:
    Path("shop.toml").write_text(RECIPE.replace(before, after))
    with pytest.raises(GnnloomError, match=message):
        find_stages(read_recipe(Path("shop.toml"), Path("catalog")), ClusterOptions())


@pytest.mark.usefixtures("folder")
def test_lists_without_relations_and_their_options_are_refused() -> None:
    source = '[dataset]\nname = "a"\n{}[source]\npath = "knows.csv"\n{}'
    for text, message in (
        (source.format("", '[[vertices]]\ntype = "user"\npath = "users.csv"\n'), r"line 5: \[\[vertices\]\]"),
        (source.format('unknown = "add"\n', ""), r"line 3: \[dataset\] unknown"),
        (source.format("", LINKS), r"line 6: \[links\] relation"),
        (source.format("", "[partition]\nreverse = true\n"), r"line 6: \[partition\] reverse"),
    ):
        Path("a.toml").write_text(text)
        with pytest.raises(GnnloomError, match=message):
            read_recipe(Path("a.toml"), Path("catalog"))
    Path("shop.toml").write_text(RECIPE)
    with pytest.raises(GnnloomError, match="number 9"):
        read_recipe(Path("shop.toml"), Path("catalog"), ["relations.9.path=x"])


RATINGS = """
[dataset]
name = "shop"

[[relations]]
source = "user"
name = "rates"
target = "item"
path = "ratings.csv"
columns = ["user", "item"]

[[vertices]]
type = "user"
path = "users.csv"
id = "id"
features = ["age"]

[[vertices]]
type = "item"
path = "items.csv"
id = "id"
features = ["price"]
"""


TRAINING = (
    RATINGS
    + """
[links]
relation = "rates"
negatives = 2

[train]
mode = "neighbor"
task = "link"
relation = "rates"
reverse = true
model = "support.typed_modules:Averages"
ranks = 1
hidden = [4]
output_dim = 3
fanout = [3, 2]
relation_fanout = ["rev_rates=2"]
epochs = 2

[predict]

[cluster]
workers = 0
"""
)


SAMPLED = (
    RATINGS
    + """
label = "kind"
split = "split"

[train]
mode = "neighbor"
of_type = "item"
reverse = true
model = "support.typed_modules:Sage"
ranks = 1
hidden = [4]
fanout = [3, 2]
relation_fanout = ["rev_rates=2"]
batch_size = 4
epochs = 2
{run}
{samples}
[cluster]
workers = 0
"""
)


def write_ratings() -> None:
    """Write the tables of 20 users and 12 items, and random ratings."""
    rng = np.random.default_rng(3)
    pairs = np.stack([rng.integers(0, 20, 150), rng.integers(0, 12, 150)], 1)
    np.savetxt("ratings.csv", pairs, "u%d,i%d", header="user,item", comments="")
    users = [f"u{number},{rng.normal():.3f}" for number in range(20)]
    items = [f"i{number},{rng.normal():.3f},{number % 3},{'train' if number < 9 else 'test'}" for number in range(12)]
    Path("users.csv").write_text("\n".join(["id,age", *users]) + "\n")
    Path("items.csv").write_text("\n".join(["id,price,kind,split", *items]) + "\n")


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_a_recipe_draws_the_batches_of_a_training_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch_geometric.nn")
    install(monkeypatch)
    write_ratings()
    text = SAMPLED.format(run='run = "packed"', samples="[samples]\nepochs = 2\n")
    planned = plan(text)
    assert [each["stage"] for each in planned] == ["graph", "transpose", "samples", "train"]
    run(text, "--until", "samples", "--json")
    assert plan(text)[3]["memory"] > 1 << 20
    found = json.loads(run(text, "--json").stdout)
    samples = Catalog(Path("catalog"))["shop"].typed_samples()
    assert samples.artifact.key == found["keys"]["samples"] == planned[2]["key"]
    run(SAMPLED.format(run='run = "drawn"', samples=""), "--json")
    packed, drawn = (gnnloom.Run.open(f"shop/{name}", "catalog") for name in ("packed", "drawn"))
    assert packed.config()["samples"] == samples.artifact.key
    assert packed.result()["loss"] == drawn.result()["loss"]


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_a_recipe_trains_on_pairs_of_a_relation_and_predicts(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = install(monkeypatch)
    write_ratings()
    planned = plan(TRAINING)
    assert [each["stage"] for each in planned] == ["graph", "links", "transpose", "train", "predict"]
    assert planned[3]["memory"] is planned[4]["memory"] is None
    run(TRAINING, "--until", "links", "--json")
    planned = plan(TRAINING)
    # A training ends with the evaluation that predicts.
    assert planned[3]["memory"] == planned[4]["memory"] > 1 << 20
    found = json.loads(run(TRAINING, "--json").stdout)
    dataset = gnnloom.Catalog("catalog")["shop"]
    (name,) = dataset.runs()
    assert name == planned[3]["key"]
    trained = gnnloom.Run.open(f"shop/{name}", "catalog")
    assert trained.state == "finished"
    assert trained.predictions().shape == (32, 3)
    assert trained.config()["links"] == found["keys"]["links"]
    assert list(found["keys"]) == ["graph", "links", "transpose", "train", "predict"]
    # Nothing is done twice, also by the recipe that the run has saved; another graph gives another run.
    jobs = launcher.jobs
    assert all(each["done"] for each in plan(TRAINING))
    saved = (trained.path / "recipe.toml").read_text()
    assert all(each["done"] for each in plan(saved))
    # The table of the result is that of the command that trains, below another title.
    words = ["--catalog", "catalog", "train", f"shop/{name}", "--model", "support.typed_modules:Averages"]
    told = CliRunner().invoke(cli, words, catch_exceptions=False)
    of_recipe, of_command = (
        [line for line in shown.stdout.splitlines() if "│" in line] for shown in (run(TRAINING), told)
    )
    assert of_recipe == of_command
    assert "validation" in told.stdout
    assert launcher.jobs == jobs
    # The files of pairs are those of the command.
    Path("some.csv").write_text("age,id\n1,u3\n2,u0\n")
    Path("asked.csv").write_text("asker,answer\nu1,i2\nu4,i0\n")
    run(TRAINING.replace("[predict]", '[predict]\ntop = 2\ntop_of = "some.csv:id"\nout = "top.csv"'))
    best = trained.top_frame(["u3", "u0"], 2)
    pd.testing.assert_frame_equal(pd.read_csv("top.csv"), best, check_dtype=False)
    run(TRAINING.replace("[predict]", '[predict]\npairs = "asked.csv"\nheader = true\nout = "scores.csv"'))
    asked = trained.score_frame([["u1", "i2"], ["u4", "i0"]])
    pd.testing.assert_frame_equal(pd.read_csv("scores.csv"), asked, check_dtype=False)
    Path("items.csv").write_text(Path("items.csv").read_text().replace("i3,", "i3,1"))
    assert not plan(TRAINING)[3]["done"]
    for old, new, named in (
        ('relation = "rates"\nreverse', 'relation = "rate"\nreverse', 'relation = "rate" in [links]'),
        ('task = "link"\nrelation = "rates"', 'of_type = "user"\ntask = "class"', "labels do not need"),
        ("[predict]", "[shards]", "reads the stored graph"),
        ("[predict]", "[predict]\ntop = 3", "top: the scores need a file"),
        ("[predict]", "[predict]\nheader = true", "give pairs"),
        ("[predict]", '[predict]\ntop_of = "users.csv:id"', "top_of: also give top"),
        ("[predict]", '[predict]\ntop = 3\npairs = "a.csv"\nout = "b.csv"', "either pairs or top"),
        ("[predict]", '[predict]\ntop = 3\nout = "b.csv"\non = "other"', "line 42: [predict] top"),
    ):
        Path("wrong.toml").write_text(
            TRAINING.replace(old, new).replace("output_dim = 3" if "of_type" in new else "\0", "")
        )
        with pytest.raises(GnnloomError, match=re.escape(named)):
            read_recipe(Path("wrong.toml"), Path("catalog"))
