"""`import gnnloom` costs nothing, and gives every public name on its first use."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gnnloom

ROOT = Path(__file__).parents[3]
_MEASURED = """
import json, sys, time
before, started = set(sys.modules), time.process_time()
import gnnloom
seconds = time.process_time() - started
modules = sorted(set(sys.modules) - before)
print(json.dumps({"seconds": seconds, "modules": modules, "file": gnnloom.__file__}))
"""


def run(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout


def test_importing_the_package_imports_nothing_else() -> None:
    check_import(json.loads(run("-c", _MEASURED)))


@pytest.mark.long
def test_the_wheel_imports_nothing_else_either(tmp_path: Path) -> None:
    tree, target = tmp_path / "tree", tmp_path / "installed"
    # A copy: building leaves folders in the tree, some of which would end up in the next wheel.
    shutil.copytree(
        ROOT, tree, ignore=shutil.ignore_patterns(".*", "build", "docs", "tests", "*.egg-info", "__pycache__")
    )
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--target", str(target))
    run("-m", "pip", "install", *options, str(tree))
    # Before the editable installation, which finds its packages by a hook.
    finders = "[each for each in sys.meta_path if 'editable' not in repr(each)]"
    begin = f"import sys; sys.path.insert(0, {str(target)!r}); sys.meta_path[:] = {finders}"
    found = json.loads(run("-c", f"{begin}\n{_MEASURED}"))
    check_import(found)
    assert found["file"].startswith(str(target))


def check_import(found: dict[str, Any]) -> None:
    assert found["seconds"] < 0.05
    own = [name for name in found["modules"] if name.startswith("gnnloom")]
    assert own == ["gnnloom", "gnnloom.storage", "gnnloom.storage.kernel_cache"]
    heavy = {"numpy", "zarr", "numba", "scipy", "dask", "distributed", "torch", "mpi4py", "click", "rich"}
    assert not heavy & {name.partition(".")[0] for name in found["modules"]}


def test_every_name_is_there_documented_and_loaded_once() -> None:
    for name in gnnloom.__all__:
        found = getattr(gnnloom, name)
        assert getattr(gnnloom, name) is found
        assert name == "__version__" or (found.__name__ == name and found.__doc__)
    assert dir(gnnloom) == sorted(gnnloom.__all__)
    assert gnnloom.__version__ == importlib.metadata.version("gnnloom")
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        getattr(gnnloom, "trian")  # noqa: B009 - type checkers would refuse the name


def test_the_module_runs_as_the_command() -> None:
    assert gnnloom.__version__ in run("-m", "gnnloom", "--version")
