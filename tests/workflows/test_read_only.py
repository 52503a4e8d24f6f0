"""gnnloom runs where neither its installation nor the home can be written to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gnnloom.storage
from gnnloom.storage.kernel_cache import KERNEL_CACHE
from support.journey import travel, write_edges

_INSTALLED = Path(gnnloom.storage.__file__).parents[1]
#: Imports every module of gnnloom, and lets each kernel look for a place.
_IMPORT_ALL = """
import importlib, os, pkgutil
import gnnloom, gnnloom.pipeline, gnnloom.storage, gnnloom.trainer
from gnnloom.storage.kernels import Kernel
places, count = set(), 0
for package in (gnnloom.pipeline, gnnloom.storage, gnnloom.trainer):
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith(("__main__", "._kernels", "pymetis", ".metis", "kahypar")):
            module = importlib.import_module(found.name)
            kernels = [each for each in vars(module).values() if isinstance(each, Kernel)]
            places |= {each.stats.cache_path for each in kernels}
            count += len(kernels)
assert count > 100, count
print(*{os.path.dirname(place) for place in places}, sep="\\n")
"""


def _can_mount() -> bool:
    return (
        shutil.which("unshare") is not None
        and not subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode
    )


pytestmark = pytest.mark.skipif(not _can_mount(), reason="mounts need the rights of root")


def _read_only(home: Path) -> list[str]:
    """The begin of a command that runs with a read-only installation and home."""
    home.mkdir()
    mounts = [f"mount --bind '{path}' '{path}' && mount -o remount,ro,bind '{path}'" for path in (_INSTALLED, home)]
    return ["unshare", "-m", "sh", "-c", f'{" && ".join(mounts)} && exec "$@"', "sh"]


def _environment(folder: Path) -> dict[str, str]:
    (folder / "temporary").mkdir()
    return {"HOME": str(folder / "home"), "TMPDIR": str(folder / "temporary"), "XDG_CACHE_HOME": str(folder / "home")}


@pytest.mark.long
def test_every_kernel_finds_a_place(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != KERNEL_CACHE}
    done = subprocess.run(
        [*_read_only(tmp_path / "home"), sys.executable, "-c", _IMPORT_ALL],
        env={**environment, **_environment(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(tmp_path / "temporary" / f"gnnloom-kernels-{os.getuid()}")]
    assert list((tmp_path / "home").iterdir()) == []


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KERNEL_CACHE, raising=False)
    work = tmp_path / "work"
    work.mkdir()
    write_edges(work)
    travel(work, environment=_environment(tmp_path), before=_read_only(tmp_path / "home"))
    assert list((tmp_path / "home").iterdir()) == []
