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


def test_tests_can_be_limited_to_a_folder_and_what_imports_it() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}

    def found(rooms: str) -> set[str]:
        files = ["tests/storage/test_errors.py", "tests/trainer/layout", "tests/workflows/cli/test_output.py"]
        asked = [*command, "--rooms", rooms, *files]
        done = subprocess.run(
            asked, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return {line.split("/")[1] for line in done.stdout.splitlines() if "::" in line}

    assert found("storage") == found("") == {"storage", "trainer", "workflows"}
    assert found("trainer") == {"trainer", "workflows"}
    assert found("workflows") == {"workflows"}
