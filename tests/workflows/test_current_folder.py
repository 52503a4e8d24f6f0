"""No file of the current folder replaces a module of a process of gnnloom, whatever its name."""

from __future__ import annotations

import importlib.metadata
import os
import py_compile
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

import gnnloom.trainer
from gnnloom.pipeline.partition.native.program import PartitionRequest
from gnnloom.pipeline.partition.native.run import child_command
from gnnloom.storage.descriptors import code_of_named, load_named
from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.transports.mpi import TRANSPORT
from gnnloom.workflows.cli.main import _COMMANDS
from support.hypergraphs import partition, ring
from support.journey import JOURNEY, travel, write_edges

#: Every name that a process of gnnloom may import: the standard library, and all that is installed.
NAMES = sorted({*sys.stdlib_module_names, *importlib.metadata.packages_distributions()})
#: What Python itself would run at its start, or libraries if it were installed.
OTHERS = ("sitecustomize", "usercustomize", "cupy", "triton")
#: Modules that every process imports early, in each form that Python knows.
_EARLY = ("json", "numpy", "random", "pickle", "typing", "mpi4py", "gnnloom")


def _as_module(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(text)


def _as_package(folder: Path, name: str, text: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(text)


def _as_bytecode(folder: Path, name: str, text: str) -> None:
    source = folder / "source.txt"
    source.write_text(text)
    py_compile.compile(str(source), str(folder / f"{name}.pyc"))


def _as_library(folder: Path, name: str, text: str) -> None:
    # Not a library: an import of it fails, which would end the process.
    (folder / f"{name}.so").write_text(text)


def _as_namespace(folder: Path, name: str, text: str) -> None:
    (folder / name).mkdir()


Form = Callable[[Path, str, str], None]


class Hostile:
    """A folder with modules that leave a mark and end the process that imports them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._mark = folder, folder.parent / "imported.txt"
        folder.mkdir()

    def add(self, name: str, form: Form = _as_module) -> None:
        text = f"import os\nos.write(os.open({str(self._mark)!r}, os.O_WRONLY | os.O_CREAT), b{name!r})\nos._exit(3)\n"
        form(self.folder, name, text)

    def imported(self) -> str:
        return self._mark.read_text() if self._mark.exists() else ""


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hostile:
    found = Hostile(tmp_path / "a stranger's földer")
    for name in (*NAMES, *OTHERS):
        found.add(name)
    monkeypatch.chdir(found.folder)
    return found


def _run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )


def _check(done: subprocess.CompletedProcess[str], hostile: Hostile) -> None:
    assert hostile.imported() == ""
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_rank_imports_nothing_from_the_current_folder(hostile: Hostile) -> None:
    _check(_run(*TRANSPORT.python, "-m", "gnnloom.trainer", "--help"), hostile)


def test_a_partitioner_imports_nothing_from_the_current_folder(
    hostile: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnnloom.pipeline.partition.native.run.child_command", child_command)
    part = partition(ring(20), "mtkahypar", PartitionRequest(2, 0.1, 0))
    assert hostile.imported() == ""
    assert sorted(np.unique(part)) == [0, 1]


@pytest.mark.long
def test_a_worker_imports_nothing_from_the_current_folder(hostile: Hostile) -> None:
    write_edges(hostile.folder)
    (ingest,) = (command for command in JOURNEY if " ingest " in command and "--workers 1" in command)
    travel(hostile.folder, [ingest])
    assert hostile.imported() == ""


@pytest.mark.parametrize(
    "form",
    [pytest.param(form, marks=pytest.mark.long) for form in (_as_package, _as_bytecode, _as_library, _as_namespace)],
)
def test_no_form_of_a_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Form) -> None:
    hostile = Hostile(tmp_path / "folder")
    for name in _EARLY:
        hostile.add(name, form)
    monkeypatch.chdir(hostile.folder)
    _check(_run(*TRANSPORT.python, "-m", "gnnloom.trainer.comm.mpi"), hostile)


@pytest.mark.long
@pytest.mark.parametrize("program", ["gnnloom", "mpi4py -m gnnloom.trainer"])
def test_without_p_only_a_file_named_like_what_is_started_is_imported(hostile: Hostile, program: str) -> None:
    for name in ("gnnloom", "mpi4py"):
        (hostile.folder / f"{name}.py").unlink()
    _check(_run(sys.executable, "-m", *program.split(), "--help"), hostile)


def test_folders_that_the_user_names_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('the module of PYTHONPATH')\n")
    monkeypatch.chdir(tmp_path)
    for program in (("-P", "-m", "gnnloom"), ("-m", "gnnloom"), (*TRANSPORT.python[1:], "-c", "import click")):
        done = _run(sys.executable, *program, PYTHONPATH=str(tmp_path))
        assert done.stderr.startswith("the module of PYTHONPATH"), done.stderr


@pytest.mark.long
def test_a_script_keeps_its_folder_and_its_environment(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("NAME = 'toy'\n")
    write_edges(tmp_path)
    (tmp_path / "script.py").write_text(
        dedent("""
        import os, sys
        import gnnloom
        from helper import NAME

        if __name__ == "__main__":
            before = dict(os.environ)
            gnnloom.ingest(NAME, "edges.txt", catalog="catalog", workers=1)
            # What the script starts later needs its own threads and folder.
            assert not {"OMP_NUM_THREADS", "PYTHONSAFEPATH"} & (os.environ.keys() - before.keys())
            import late
        """)
    )
    (tmp_path / "late.py").write_text("print('late')\n")
    for command in (["script.py"], ["script.py", "gnnloom"]):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert (done.returncode, done.stdout) == (0, "late\n"), done.stderr


def test_a_module_of_the_users_own_is_found_after_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "numbers_of_mine.py").write_text(
        dedent("""
        def late():
            from sibling_of_mine import VALUE
            return VALUE

        def other():
            import json
            return json
        """)
    )
    (tmp_path / "sibling_of_mine.py").write_text("VALUE = 5\n")
    (tmp_path / "json.py").write_text("def loss(): ...\n")
    late, other = (load_named("loss", f"numbers_of_mine:{name}") for name in ("late", "other"))
    assert callable(late)
    assert callable(other)
    assert late() == 5
    assert other().__file__ != str(tmp_path / "json.py")
    with pytest.raises(InputError, match=r"json/__init__\.py has no loss"):
        load_named("loss", "json:loss")
    assert sys.path.count(str(tmp_path)) == 1


def test_an_installed_module_does_not_put_the_current_folder_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    assert load_named("model", "gnnloom.workflows.examples.gcnii:GCNII")
    assert code_of_named("json:loads") is not None
    assert str(tmp_path) not in sys.path


def test_the_current_folder_keeps_the_place_that_the_user_gave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "named_by_path.py").write_text("VALUE = 1\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert load_named("model", "named_by_path:VALUE") == 1
    assert sys.path.index(str(tmp_path)) == 0
    assert sys.path.count(str(tmp_path)) == 1


def test_the_journey_has_every_command() -> None:
    travelled = {word for command in JOURNEY for word in command.split()}
    assert _COMMANDS.keys() <= travelled


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_no_command_imports_from_the_current_folder(hostile: Hostile) -> None:
    write_edges(hostile.folder)
    travel(hostile.folder)
    assert hostile.imported() == ""


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_model_beside_files_named_like_modules_trains(hostile: Hostile) -> None:
    # Without names of modules that are not installed: a model's imports may look for them in its folder.
    for name in OTHERS:
        (hostile.folder / f"{name}.py").unlink()
    example = Path(gnnloom.trainer.__file__).parents[1] / "workflows" / "examples" / "gcnii.py"
    text = example.read_text()
    (hostile.folder / "own_gcnii.py").write_text(text)
    write_edges(hostile.folder)
    model = "--model own_gcnii:GCNII"
    train = f"{model} --hidden 4,4 --epochs 2 --threads 1 --ranks 2"
    prepare = [command for command in JOURNEY[:6] if "mtkahypar" not in command]
    travel(hostile.folder, [*prepare, f"gnnloom train web/own {train}", f"gnnloom predict web/own {model}"])
    assert hostile.imported() == ""
