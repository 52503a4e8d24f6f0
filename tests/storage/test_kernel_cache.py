"""Kernels are compiled where an installation and a home are read-only, too."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gnnloom.storage.kernel_cache import KERNEL_CACHE, choose_kernel_cache

#: Where even root cannot make a file.
READ_ONLY = "/proc/self/nowhere"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def chosen(package: str, **environment: str) -> str | None:
    choose_kernel_cache(environment, package)
    return environment.get(KERNEL_CACHE)


def test_numba_chooses_where_it_can_write(temporary: Path) -> None:
    assert chosen(str(temporary), XDG_CACHE_HOME=READ_ONLY) is None
    assert chosen(READ_ONLY, XDG_CACHE_HOME=str(temporary / "to" / "be" / "made")) is None
    assert chosen(READ_ONLY, XDG_CACHE_HOME=READ_ONLY, NUMBA_CACHE_DIR="/own") == "/own"
    assert list(temporary.iterdir()) == []


def test_a_read_only_installation_and_home_get_a_folder_of_ones_own(temporary: Path) -> None:
    found = chosen(READ_ONLY, XDG_CACHE_HOME=READ_ONLY)
    assert found == str(temporary / f"gnnloom-kernels-{os.getuid()}")
    assert Path(found).stat().st_mode & 0o777 == 0o700
    assert chosen(READ_ONLY, XDG_CACHE_HOME=READ_ONLY) == found


def test_a_folder_that_others_can_write_to_is_not_used(temporary: Path) -> None:
    planted = temporary / f"gnnloom-kernels-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    found = chosen(READ_ONLY, XDG_CACHE_HOME=READ_ONLY)
    assert found is not None
    assert Path(found).parent == temporary
    assert Path(found) != planted


def test_kernels_of_a_read_only_installation_run(tmp_path: Path) -> None:
    program = f"""
import os
os.access = lambda path, mode: str(path).startswith({str(tmp_path)!r})
import gnnloom.storage.matrix.permutation, numba
print(numba.config.CACHE_DIR)
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "XDG_CACHE_HOME": READ_ONLY}
    environment.pop(KERNEL_CACHE, None)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / f"gnnloom-kernels-{os.getuid()}")
