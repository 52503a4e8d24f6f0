"""New recipes and the recipe reference have every key, with its help."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from gnnloom.storage.errors import ExistsError
from gnnloom.storage.option import MOST_USED, Group
from gnnloom.workflows.recipe.read import read_recipe
from gnnloom.workflows.recipe.recipe import SECTIONS
from gnnloom.workflows.recipe.reference import new_recipe, recipe_sections, write_new_recipe


def _with_defaults(text: str) -> str:
    """Remove the # in front of every key that shows its default."""
    return re.sub(r"^#(\w+ = [^<])", r"\1", text, flags=re.MULTILINE)


def test_every_section_and_key_has_help() -> None:
    assert {section.name for section in recipe_sections()} == set(SECTIONS)
    for section in recipe_sections():
        assert section.help
        for key in section.keys:
            assert len(key.help) > 5, f"[{section.name}] {key.name}: add its help to the field or to the docstring"


def test_a_new_recipe_is_valid_and_has_every_key(tmp_path: Path) -> None:
    path = tmp_path / "My Graph.toml"
    write_new_recipe(path)
    recipe = read_recipe(path, tmp_path)
    assert recipe.dataset.name == "my-graph"
    assert recipe.train is not None
    sections = {
        name: set(re.findall(r"^#?(\w+) = ", block, flags=re.MULTILINE))
        for name, block in re.findall(r"^\[(\w+)\]\n((?:(?!^\[).*\n)*)", path.read_text(), flags=re.MULTILINE)
    }
    wanted = [section for section in recipe_sections() if not section.is_list]
    assert sections == {section.name: {key.name for key in section.keys} for section in wanted}


def test_the_defaults_of_a_new_recipe_are_those_of_the_recipe(tmp_path: Path) -> None:
    shown = tomllib.loads(_with_defaults(new_recipe("new.toml")))
    # The keys of the other sections depend on the format or the algorithm.
    kept = {name: shown[name] for name in ("dataset", "predict", "cluster", "slurm")}
    bare = tmp_path / "bare.toml"
    bare.write_text('[dataset]\nname = "new"\n[source]\nformat = "sbm"\nvertices = 9\nedges = 9\n[train]\n[predict]\n')
    settings = [f"{name}.{key}={value}" for name, keys in kept.items() for key, value in keys.items()]
    given = [setting.replace("=True", "=true").replace("=False", "=false") for setting in settings]
    empty = read_recipe(bare, tmp_path)
    assert read_recipe(bare, tmp_path, given) == empty
    assert empty.training.values().items() >= _comparable(shown["train"]).items()


def _comparable(values: dict[str, object]) -> dict[str, object]:
    # A normalization that was not chosen is stored as the one of the model.
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if name != "normalization"
    }


def test_a_new_recipe_replaces_no_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("precious")
    with pytest.raises(ExistsError, match="the file exists"):
        write_new_recipe(path)
    assert path.read_text() == "precious"


def test_a_new_recipe_has_the_groups_of_the_help() -> None:
    text = new_recipe("new.toml")
    train = text[text.index("\n[train]\n") : text.index("\n[predict]\n")]
    headings = re.findall(r"^# ---- (.+) ----$", train, flags=re.MULTILINE)
    assert headings == [heading for heading in (MOST_USED, *Group) if heading in headings]
    assert {MOST_USED, "Data", "Distribution", "Model", "Task", "Optimization", "Sampling"} <= set(headings)
    sampling = train[train.index("---- Sampling ----") : train.index("---- Checkpoints ----")]
    assert "#fanout = " in sampling
    assert "#lr = 0.01" in train[: train.index("---- Data ----")]
