"""Every process that collects the tests finds the same ones in the same order, as parallel test runs require."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.long  # the workers of `make test` compare their collections, and each orders its sets in another way
def test_a_second_collection_finds_the_same_tests(request: pytest.FixtureRequest) -> None:
    mine = [item.nodeid for item in request.session.items]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *request.config.args]
    command += ["-m", request.config.getoption("markexpr")]
    # Sets and dictionaries of this process are ordered by another seed.
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    for variable in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        environment.pop(variable, None)
    done = subprocess.run(
        command, cwd=request.config.rootpath, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    theirs = [line for line in done.stdout.splitlines() if "::" in line]
    assert theirs == mine


@pytest.mark.long
def test_tests_can_be_limited_to_a_folder_and_what_imports_it() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    files = ["tests/storage/test_errors.py", "tests/trainer/layout", "tests/workflows/cli/test_output.py"]
    choices = ["storage", "", "trainer", "workflows"]
    # One process for all of them, which imports what the files import once.
    program = f"""
import pytest
for rooms in {choices}:
    print("rooms", rooms, flush=True)
    assert pytest.main(["--collect-only", "-q", "--rooms", rooms, *{files}]) == 0
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[set[str]] = []
    for line in done.stdout.splitlines():
        if line.startswith("rooms "):
            found.append(set())
        elif "::" in line:
            found[-1].add(line.split("/")[1])
    everything = {"storage", "trainer", "workflows"}
    assert found == [everything, everything, {"trainer", "workflows"}, {"workflows"}]
