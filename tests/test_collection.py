"""Every process that collects the tests finds the same ones in the same order, as parallel test runs require."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


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
