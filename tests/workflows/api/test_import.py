"""`import gnnloom` costs nothing, and gives every public name on its first use."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys

import pytest

import gnnloom

_MEASURED = """
import json, sys, time
before, started = set(sys.modules), time.process_time()
import gnnloom
seconds = time.process_time() - started
print(json.dumps({"seconds": seconds, "modules": sorted(set(sys.modules) - before)}))
"""


def run(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout


def test_importing_the_package_imports_nothing_else() -> None:
    found = json.loads(run("-c", _MEASURED))
    assert found["seconds"] < 0.05
    # Only what Python itself needs to read the file.
    assert [name for name in found["modules"] if name.startswith("gnnloom")] == ["gnnloom"]
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
