"""The examples in docstrings run, and print what they show."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import gnnloom

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("storage", "pipeline", "trainer", "workflows")
#: Modules whose examples start ranks, or read the dataset and the run that :func:`folder` makes.
_ON_A_DATASET = (
    "gnnloom.storage.catalog",
    "gnnloom.storage.public",
    "gnnloom.workflows.api.",
    "gnnloom.workflows.interop.",
)


def modules_with_examples() -> list[str]:
    """Names of the modules of the package that have an example."""
    files = [file for room in ROOMS for file in sorted((ROOT / room).rglob("*.py")) if ">>> " in file.read_text()]
    return [f"gnnloom.{'.'.join(file.relative_to(ROOT).with_suffix('').parts)}" for file in files]


def test_half_of_the_names_of_the_public_api_have_an_example() -> None:
    public = [getattr(gnnloom, name) for name in gnnloom.__all__ if name != "__version__"]
    shown = [each for each in public if ">>> " in (each.__doc__ or "")]
    assert len(shown) >= len(public) // 2


@pytest.mark.parametrize("module", [name for name in modules_with_examples() if not name.startswith(_ON_A_DATASET)])
def test_examples_of_a_module_print_what_they_show(module: str) -> None:
    run_examples(module)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table ``calls.csv``, and a catalog with dataset ``web`` and its run ``first``."""
    path = tmp_path_factory.mktemp("examples")
    (path / "calls.csv").write_text("caller,callee\nann,bob\nbob,carla\n")
    catalog = path / "catalog"
    web = gnnloom.generate("web", "sbm", vertices=200, edges=800, classes=4, dim=8, catalog=catalog, workers=0)
    gnnloom.partition(web, parts=2)
    gnnloom.shard(web, parts=2, workers=0)
    gnnloom.train(web, ranks=2, hidden=16, epochs=5, run="first")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("module", [name for name in modules_with_examples() if name.startswith(_ON_A_DATASET)])
def test_examples_on_a_dataset_print_what_they_show(module: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if module == "gnnloom.workflows.api.loader":
        pytest.importorskip("torch_geometric.nn")
    monkeypatch.chdir(folder)
    run_examples(module)


def run_examples(name: str) -> None:
    """Run the examples of a module."""
    module = import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_ONLY_FIRST_FAILURE)
    lines = list[str]()
    found = doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs={"gnnloom": gnnloom, "np": np})
    for example in found:
        runner.run(example, out=lines.append)
    assert runner.tries > 0
    assert not runner.failures, "".join(lines)
