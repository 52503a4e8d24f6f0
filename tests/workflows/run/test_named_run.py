"""A recipe runs on a graph whose ids are names, with tables keyed by name and several labels per vertex."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gnnloom.storage import Catalog
from gnnloom.workflows.recipe.request import RecipeRequest
from gnnloom.workflows.report.build import write_report
from gnnloom.workflows.report.facts import open_run
from support.recipes import run_arguments, run_here
from support.reported_runs import draw_few_pixels

PEOPLE = 60
RECIPE = """\
[dataset]
name = "people"
undirected = true
ids = "compact"

[source]
path = "{folder}/edges.csv"
header = true

[vertices]
format = "keyed"
feature = "{folder}/x.csv"
label = "{folder}/y.csv"
split = "{folder}/split.csv"

[partition]
method = "random"

[train]
ranks = 2
hidden = [8]
epochs = 40
eval_every = 10

[predict]
out = "{folder}/predicted.csv"

[cluster]
workers = 0
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A ring of people, with features that reveal which of two things each person likes."""
    random = np.random.default_rng(3)
    names = [f"person {number:02d}" for number in range(PEOPLE)]
    likes = random.integers(0, 2, (PEOPLE, 2))
    tables: dict[str, list[Any]] = {
        "edges": [("from", "to"), *zip(names, names[1:] + names[:1], strict=True)],
        "x": _shuffled(names, likes * 4.0 - 2 + random.normal(size=likes.shape)),
        "y": _shuffled(names, likes),
        "split": _shuffled(names, 1 + random.integers(0, 3, (PEOPLE, 1))),
    }
    for table, rows in tables.items():
        with (tmp_path / f"{table}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(folder=tmp_path))
    return path


def _shuffled(names: list[str], values: NDArray[Any]) -> list[list[object]]:
    order = np.random.default_rng(1).permutation(len(names))
    return [["name", *(f"column {k}" for k in range(values.shape[1]))]] + [[names[k], *values[k]] for k in order]


@pytest.mark.long
def test_a_recipe_goes_from_named_tables_to_predictions_and_a_report(
    tmp_path: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_few_pixels(monkeypatch)
    result = run_here(run_arguments(str(recipe), tmp_path / "catalog"))
    assert result["test_f1"] > 0.6
    assert RecipeRequest(recipe, tmp_path / "catalog").check().needs_preparation is False
    with (tmp_path / "predicted.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert len(rows) == PEOPLE + 1
    assert rows[1][0] == "person 00"
    facts = open_run(Catalog(tmp_path / "catalog"), "people")
    page, *pictures = write_report(facts, tmp_path / "report")
    assert "accuracy.png" in {picture.name for picture in pictures}
    assert "micro F1" in page.read_text(encoding="utf-8")


def test_a_changed_table_changes_the_key_of_the_vertex_data_before_anything_runs(tmp_path: Path, recipe: Path) -> None:
    before = RecipeRequest(recipe, tmp_path / "catalog").check().found.keys
    with (tmp_path / "y.csv").open("a", encoding="utf-8") as file:
        file.write("nobody,1,1\n")
    after = RecipeRequest(recipe, tmp_path / "catalog").check().found.keys
    assert before["graph"] == after["graph"]
    assert before["vertices"] != after["vertices"]
