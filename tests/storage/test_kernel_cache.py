"""Kernels are compiled where an installation and a home are read-only, too."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gnnloom.storage.errors import in_one_line
from gnnloom.storage.kernel_cache import KERNEL_CACHE, choose_kernel_cache
from gnnloom.storage.kernels import copy_elements

#: Where even root cannot make a file.
READ_ONLY = "/proc/self/nowhere"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def installed(temporary: Path) -> Path:
    """The folder of an installation that can be written to."""
    for room in ("storage/matrix", "pipeline", "trainer"):
        (temporary / "installed" / room / "__pycache__").mkdir(parents=True)
    return temporary / "installed"


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a folder read-only, which for root no permission does."""
    locked, access = set[str](), os.access
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) not in locked and access(path, mode))
    return lambda folder: locked.add(str(folder))


def chosen(package: str | Path, **environment: str) -> str | None:
    choose_kernel_cache(environment, str(package))
    return environment[KERNEL_CACHE] or None


def own(temporary: Path) -> str:
    return str(temporary / f"gnnloom-kernels-{os.getuid()}")


def test_numba_chooses_where_it_can_write(temporary: Path, installed: Path) -> None:
    assert chosen(installed, XDG_CACHE_HOME=READ_ONLY) is None
    assert chosen(READ_ONLY, XDG_CACHE_HOME=str(temporary / "to" / "be" / "made")) is None
    assert chosen(READ_ONLY, XDG_CACHE_HOME=READ_ONLY, NUMBA_CACHE_DIR=str(temporary / "own")) == str(temporary / "own")
    assert list(temporary.iterdir()) == [installed]


def test_a_read_only_installation_and_home_get_a_folder_of_ones_own(temporary: Path) -> None:
    found = chosen(READ_ONLY, XDG_CACHE_HOME=READ_ONLY)
    assert found == own(temporary)
    assert Path(found).stat().st_mode & 0o777 == 0o700
    assert chosen(READ_ONLY, XDG_CACHE_HOME=READ_ONLY) == found


def test_a_folder_that_cannot_be_written_to_is_replaced(temporary: Path) -> None:
    assert chosen(READ_ONLY, XDG_CACHE_HOME=READ_ONLY, NUMBA_CACHE_DIR=READ_ONLY) == own(temporary)


@pytest.mark.parametrize("name", ["storage/matrix/__pycache__", "pipeline/__pycache__", "trainer"])
def test_one_read_only_folder_of_an_installation_suffices(
    temporary: Path, installed: Path, lock: Callable[[Path], None], name: str
) -> None:
    lock(installed / name)
    (installed / "trainer" / "__pycache__").rmdir()
    assert chosen(installed, XDG_CACHE_HOME=READ_ONLY) == own(temporary)


def test_one_read_only_folder_of_a_cache_suffices(temporary: Path, lock: Callable[[Path], None]) -> None:
    # As after one command with `sudo`.
    taken = temporary / "cache" / "numba" / "storage_0123"
    taken.mkdir(parents=True)
    assert chosen(READ_ONLY, XDG_CACHE_HOME=str(temporary / "cache")) is None
    lock(taken)
    assert chosen(READ_ONLY, XDG_CACHE_HOME=str(temporary / "cache")) == own(temporary)


@pytest.mark.parametrize("home", ["", "relative", "~/.cache", "/dev/null", "file", "gone"])
def test_a_home_that_is_no_folder_is_not_used(temporary: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    # A relative one would be a stranger's in some current folders, and numba runs what it finds there.
    monkeypatch.chdir(temporary)
    (temporary / "file").touch(mode=0o755)
    (temporary / "gone").symlink_to(temporary / "elsewhere")
    path = str(temporary / home) if home in {"file", "gone"} else home
    assert chosen(READ_ONLY, XDG_CACHE_HOME=path) == own(temporary)


def test_a_folder_that_others_can_write_to_is_not_used(temporary: Path) -> None:
    planted = Path(own(temporary))
    planted.mkdir()
    planted.chmod(0o777)
    found = chosen(READ_ONLY, XDG_CACHE_HOME=READ_ONLY)
    assert found is not None
    assert Path(found).parent == temporary
    assert Path(found) != planted


@pytest.mark.slow
def test_numba_takes_no_cache_from_a_file_of_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / ".numba_config.yaml").write_text(
        f"cache_dir: {tmp_path / 'planted'}\ncache_locator_classes: evil.Locator\nchrome_trace: {tmp_path / 'trace'}\n"
    )
    (tmp_path / "evil.py").write_text("raise SystemExit(3)")
    program = "import gnnloom.storage.kernels as k, numba; print(k.copy_elements.stats.cache_path)"
    environment = {name: value for name, value in os.environ.items() if name != KERNEL_CACHE}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert not done.stdout.startswith(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {".numba_config.yaml", "evil.py"}


@pytest.mark.slow
def test_no_folder_at_all_is_reported_in_one_line() -> None:
    program = """
import numba.core.caching as caching
for impl in (caching.CodeLibraryCacheImpl, caching.CompileResultCacheImpl): impl._locator_classes = []
from gnnloom.storage.errors import in_one_line
from gnnloom.storage.kernels import copy_elements
try:
    copy_elements.compiled
except RuntimeError as error:
    print(in_one_line(error))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "set NUMBA_CACHE_DIR" in done.stdout
    assert in_one_line(RuntimeError("another")) is None


def test_a_copy_of_a_kernel_is_the_kernel() -> None:
    assert copy.deepcopy([copy_elements]) == [copy_elements]


def test_kernels_of_a_read_only_installation_run(tmp_path: Path) -> None:
    program = f"""
import copy
import os
os.access = lambda path, mode: str(path).startswith({str(tmp_path)!r})
import gnnloom.storage.matrix.permutation, numba
print(numba.config.CACHE_DIR)
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "XDG_CACHE_HOME": READ_ONLY}
    environment.pop(KERNEL_CACHE, None)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == own(tmp_path)
