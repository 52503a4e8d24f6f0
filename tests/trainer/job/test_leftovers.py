"""What killed processes left is removed, and nothing that a process uses."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from gnnloom.storage import shared_memory
from gnnloom.storage.disk.own_folder import MARK, own_folder
from gnnloom.trainer.job import leftovers
from gnnloom.trainer.job.leftovers import find_leftovers, remove_leftovers, remove_segments_since
from gnnloom.trainer.job.stop import StopRequest
from gnnloom.workflows.cli.main import cli


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "SETTLED_SECONDS", 0.02)
    monkeypatch.setattr(leftovers, "QUIET_SECONDS", 0.02)


def test_only_shared_memory_that_nobody_uses_is_removed(tmp_path: Path) -> None:
    names = ("mpich_shm_mapped", "mpich_shm_open", "mpich_shm_left", "sem.mp-left", "somebody-elses")
    for name in names:
        (tmp_path / name).write_bytes(bytes(5000))
    time.sleep(0.05)
    with (tmp_path / "mpich_shm_open").open("rb"), (tmp_path / "mpich_shm_mapped").open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
        file.close()
        found = find_leftovers(tmp_path, tmp_path)
        assert [(item.path.name, item.bytes) for item in found] == [("mpich_shm_left", 5000), ("sem.mp-left", 5000)]
        remove_leftovers(found)
        mapped.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mpich_shm_mapped", "mpich_shm_open", "somebody-elses"]


def test_a_job_removes_only_what_came_since_it_began(tmp_path: Path) -> None:
    (tmp_path / "mpich_shm_before").write_bytes(b"x")
    time.sleep(0.05)
    started = time.time()
    # Times of files come from a clock that may be a tick behind.
    time.sleep(0.02)
    (tmp_path / "mpich_shm_mine").write_bytes(b"x")
    (tmp_path / "sem.mp-other").write_bytes(b"x")
    assert remove_segments_since(started, tmp_path) == [tmp_path / "mpich_shm_mine"]
    assert remove_segments_since(started, tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 2


def test_the_temporary_folder_of_a_killed_process_is_found_and_no_other(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from gnnloom.storage.disk.own_folder import own_folder\n"
        "with own_folder(within=Path(sys.argv[1])) as folder: print(folder, flush=True); time.sleep(99)"
    )
    (tmp_path / "gnnloom-datasets").mkdir()
    with (
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process,
        own_folder(within=tmp_path) as mine,
    ):
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert (mine / MARK).exists()
        time.sleep(0.05)
        assert find_leftovers(tmp_path, tmp_path) == []
        process.kill()
        process.wait()
        assert [item.path for item in find_leftovers(tmp_path, tmp_path)] == [folder]
        remove_leftovers(find_leftovers(tmp_path, tmp_path))
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([mine.name, "gnnloom-datasets"])


def test_the_doctor_cleans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mpich_shm_left").write_bytes(b"x")
    time.sleep(0.05)
    real = leftovers.find_leftovers
    monkeypatch.setattr("gnnloom.workflows.cli.doctor.find_leftovers", lambda: real(tmp_path, tmp_path))
    done = CliRunner().invoke(cli, ["doctor", "--clean", "--json"], catch_exceptions=False)
    assert str(tmp_path / "mpich_shm_left") in done.output
    assert list(tmp_path.iterdir()) == []


def test_a_prediction_is_ended_by_sigterm(tmp_path: Path) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        stop = StopRequest(signal.SIGTERM, signal.SIGUSR1)
        child = os.fork()
        if not child:
            stop.received = True
            stop.release()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        stop.release()
        assert signal.getsignal(signal.SIGTERM) is signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
