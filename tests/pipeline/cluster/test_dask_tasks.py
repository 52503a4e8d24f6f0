"""Tasks on a Dask cluster: keys that people can read, common fields sent once, and another attempt if it helps."""

from __future__ import annotations

import errno
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from gnnloom.pipeline.cluster import dask_tasks
from gnnloom.pipeline.cluster.dask_cluster import DaskCluster
from gnnloom.pipeline.cluster.dask_tasks import attempted, prepare, task_name
from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, memory_per_thread, open_cluster
from gnnloom.pipeline.tasks.memory import BASE_MEMORY
from gnnloom.storage.errors import DamagedWorkError, InputError


@dataclass(frozen=True)
class Described:
    """A task with a large source."""

    source: tuple[str, ...]
    number: int
    writer: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(kind="graph"))

    @property
    def name(self) -> str:
        return f"scatter/{self.number:05d}"


def files_and_number(task: Described) -> tuple[int, int]:
    return len(task.source), task.number


def own_key(_: Described) -> str:
    from distributed import get_worker

    return str(get_worker().get_current_task())


def test_tasks_are_called_by_their_stage_phase_and_number() -> None:
    assert task_name(files_and_number, Described((), 12), 3) == "graph-scatter-00012"
    assert task_name(files_and_number, 7, 3) == "files_and_number-00003"
    keys = [prepare(files_and_number, [Described((), 0)]).keys[0] for _ in range(2)]
    # Two runs of a task have two keys: Dask returns the earlier result for a key that it knows.
    assert keys[0] != keys[1]


def test_a_large_field_in_common_is_not_sent_with_every_task() -> None:
    source = tuple(f"file-{number}" for number in range(4000))
    prepared = prepare(files_and_number, [Described(source, number) for number in range(10)])
    assert list(prepared.common) == ["source"]
    from distributed.protocol.pickle import dumps

    assert max(len(dumps(item)) for item in prepared.items) < 1000
    # Fields that differ stay where they are, and so do small ones.
    separate = [Described((*source, str(number)), number) for number in range(3)]
    assert not prepare(files_and_number, separate).common
    assert not prepare(files_and_number, [Described(source[:3], 1), Described(source[:3], 2)]).common


def fail_at_length(length: int) -> None:
    if length < 0:
        raise DamagedWorkError(Path("file"), f"damaged {'x' * -length}; remove it")
    raise InputError(f"file: {'x' * length}; do this")


@pytest.mark.slow
def test_workers_complete_the_tasks_that_they_get() -> None:
    source = tuple(f"file-{number}" for number in range(4000))
    with open_cluster(ClusterOptions(workers=1)) as cluster:
        with pytest.raises(InputError, match=r"^file: x{6000}; do this$"):
            list(cluster.map(fail_at_length, [6000]))
        # Dask cuts messages of more than 10,000 characters at their end.
        with pytest.raises(InputError, match=r"^file: x+ \[\.\.\. .* characters left out \.\.\.\] x+; do this$"):
            list(cluster.map(fail_at_length, [20_000]))
        with pytest.raises(DamagedWorkError, match=r"^file: damaged x+ .* left out .* x+; remove it$") as caught:
            list(cluster.map(fail_at_length, [-20_000]))
        assert caught.value.path == Path("file")
        for _ in range(2):
            tasks = [Described(source, number) for number in range(5)]
            assert sorted(cluster.map(files_and_number, tasks)) == [(4000, number) for number in range(5)]
            assert all(key.startswith("graph-scatter-0000") for key in cluster.map(own_key, tasks))


def test_an_error_that_passes_is_followed_by_another_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_tasks, "FIRST_PAUSE", 0.0)
    calls: list[int] = []

    def stale_until(attempt: int, number: int) -> int:
        calls.append(attempt)
        if len(calls) < attempt:
            raise OSError(number, "once")
        return 5

    assert attempted(lambda attempt: stale_until(attempt, errno.ESTALE), 3) == 5
    calls.clear()
    with pytest.raises(OSError, match="once"):
        attempted(lambda attempt: stale_until(attempt, errno.ESTALE), 4)
    assert len(calls) == 3
    for error in (OSError(errno.ENOSPC, "full"), InputError("wrong")):
        failed: list[int] = []

        def fail(_: int, error: Exception = error, failed: list[int] = failed) -> None:
            failed.append(1)
            raise error

        with pytest.raises(type(error)):
            attempted(fail, 0)
        assert len(failed) == 1


@pytest.mark.parametrize("workers", [4097, 10**29])
def test_more_workers_than_a_machine_could_have_are_refused_at_once(workers: int) -> None:
    with (
        pytest.raises(InputError, match=f"workers {workers}: expected at most 4096"),
        open_cluster(ClusterOptions(workers=workers)),
    ):
        pass


def test_threads_of_a_worker_share_its_memory() -> None:
    assert memory_per_thread(4 << 30, 1) == 4 << 30
    # Four tasks at once hold the libraries once, and fill the memory.
    assert 4 * memory_per_thread(4 << 30, 4) - 3 * BASE_MEMORY == 4 << 30


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_a_scheduler_with_threads_and_tls_serves(tmp_path: Path) -> None:
    import dask
    from distributed import LocalCluster
    from distributed.security import Security

    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    openssl = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    subprocess.run([*openssl.split(), "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    own = {"key": str(key), "cert": str(certificate)}
    tls = {f"{role}.{name}": path for role in ("client", "scheduler", "worker") for name, path in own.items()}
    tls["ca-file"] = str(certificate)
    with dask.config.set({f"distributed.comm.tls.{name}": path for name, path in tls.items()}):
        security = Security(require_encryption=True)
        with (
            LocalCluster(
                n_workers=1,
                threads_per_worker=2,
                processes=False,
                protocol="tls://",
                security=security,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
            ) as local,
            open_cluster(ClusterOptions("address", None, 1 << 30, local.scheduler_address)) as cluster,
        ):
            assert local.scheduler_address.startswith("tls://")
            assert isinstance(cluster, DaskCluster)
            assert (cluster.workers, cluster.memory) == (2, memory_per_thread(1 << 30, 2))
            assert sorted(cluster.map(files_and_number, [Described((), 1), Described((), 2)])) == [(0, 1), (0, 2)]
