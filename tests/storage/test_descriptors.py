"""Descriptors are found in the files of a room and in other packages; wrong ones are refused by name."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from gnnloom.storage.descriptors import UnconfirmedName, code_of_named, load_descriptors, load_named
from gnnloom.storage.errors import InputError

_KIND = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Toy:
    name: str
    order: int
"""

Load = Callable[[], Mapping[str, Any]]


def write_toy(folder: Path, module: str, value: str) -> None:
    (folder / f"{module}.py").write_text(f"from {folder.name}.kind import Toy\nTOY = {value}\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A package with two descriptors, and a module without one; named after the test's folder, so only once."""
    folder = tmp_path / f"toys_of_{tmp_path.name}"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "kind.py").write_text(_KIND)
    write_toy(folder, "first", "Toy('first', 2)")
    write_toy(folder, "second", "Toy('second', 1)")
    return folder


@pytest.fixture
def load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load the descriptors of the package; `monkeypatch` has the entry points of no other package."""
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [])

    def load() -> Mapping[str, Any]:
        kind = importlib.import_module(f"{folder.name}.kind").Toy
        return load_descriptors(importlib.import_module(folder.name), "TOY", "gnnloom.toys", kind)

    return load


def test_descriptors_come_in_the_order_of_choices(folder: Path, load: Load) -> None:
    write_toy(folder, "third", "Toy('another', 1)")
    assert list(load()) == ["another", "second", "first"]


def test_entry_points_of_other_packages_add_descriptors(
    folder: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = folder.with_name(f"other_{folder.name}")
    package.mkdir()
    (package / "__init__.py").write_text(f"from {folder.name}.kind import Toy\nRING = Toy('ring', 0)\n")
    point = EntryPoint("ring", f"{package.name}:RING", "gnnloom.toys")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point] if group == "gnnloom.toys" else [])
    assert list(load()) == ["ring", "second", "first"]


def test_two_descriptors_of_one_name_are_refused(folder: Path, load: Load) -> None:
    write_toy(folder, "third", "Toy('first', 3)")
    with pytest.raises(InputError, match=r"third: gnnloom\.toys .*'first'"):
        load()


def test_a_constant_of_another_kind_is_refused(folder: Path, load: Load) -> None:
    write_toy(folder, "third", "5")
    with pytest.raises(InputError, match="third: "):
        load()


def test_the_choices_cannot_be_changed(load: Load) -> None:
    with pytest.raises(TypeError):
        load()["new"] = None  # type: ignore[index]


def test_looking_for_the_code_of_a_name_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "looked_for" / "inner"
    package.mkdir(parents=True)
    for path in (package.parent / "__init__.py", package / "__init__.py", package / "module.py"):
        path.write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    code = code_of_named("looked_for.inner.module:Name")
    assert code == code_of_named("looked_for.inner:Name")
    assert code is not None
    assert code_of_named("looked_for.missing.module:Name") is None
    unconfirmed = UnconfirmedName("looked_for:Name", tmp_path / "config.json", "model")
    assert code_of_named(unconfirmed) is None
    for copied in (unconfirmed, copy.deepcopy(unconfirmed)):
        assert copied == "looked_for:Name"
        with pytest.raises(InputError, match=r"config\.json: model "):
            load_named("model", copied)
    assert "looked_for" not in sys.modules
