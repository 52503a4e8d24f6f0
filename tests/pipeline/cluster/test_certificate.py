"""Nobody else on the network or the machine gives work to a cluster, and its key is never in a file that stays."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import subprocess
from pathlib import Path

import dask
import psutil
import pytest
from cryptography import x509
from distributed import Client, Security
from distributed.comm.core import connect

from gnnloom.pipeline.cluster.certificate import SECRET_BYTES, Certificate, make_certificate
from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.trainer.comm.transports.mpi import find_mpiexec
from gnnloom.trainer.job.launch import rank_environment
from support.mpi import TESTS, rank_command
from support.web_pages import listening, web_servers

PROGRAM = Path(__file__).parent / "programs" / "intruders.py"


@pytest.mark.slow
def test_only_the_ranks_of_an_mpi_cluster_give_it_work(tmp_path: Path) -> None:
    out, temporary = tmp_path / "outcomes.json", tmp_path / "temporary"
    temporary.mkdir()
    command = [find_mpiexec(), "-n", "3", *rank_command(), str(PROGRAM), str(out)]
    environment = {**rank_environment(3), "TMPDIR": str(temporary), "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(out.read_text())
    assert outcomes["results"] == [1, 4, 9]
    # The scheduler, a worker, and its nanny.
    assert [address.partition("://")[0] for address in outcomes["addresses"]] == ["tls"] * 3
    assert outcomes["own certificate"] == ["connected"] * 3
    assert outcomes["web servers"] == []
    for stranger in ("plain", "another certificate"):
        assert [outcome.partition(":")[0] for outcome in outcomes[stranger]] == ["refused"] * 3, outcomes[stranger]
    left = [path for path in temporary.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    assert left == []


@pytest.mark.slow
def test_workers_on_this_machine_refuse_other_users_and_serve_no_pages() -> None:
    # Other tests in this process may have started servers that stay.
    before = listening(psutil.Process())
    with open_cluster(ClusterOptions(workers=1)) as cluster:
        assert sorted(cluster.map(abs, [-1, -2])) == [1, 2]
        # The scheduler, and a worker with its nanny.
        assert len(set(listening(psutil.Process())) - set(before)) == 3
        assert web_servers(psutil.Process()) == []
        address = Client.current().scheduler.address
        assert address.startswith("tls://")
        stranger = make_certificate().settings()
        with dask.config.set(stranger), pytest.raises(OSError, match="TLS"):
            asyncio.run(connect(address, timeout=1, **Security().get_connection_args("client")))


def test_a_certificate_is_sent_whole_and_shown_without_its_key() -> None:
    certificate = make_certificate()
    content = certificate.to_bytes()
    assert len(content) == SECRET_BYTES
    assert Certificate.from_bytes(content) == certificate
    assert "PRIVATE" in certificate.key
    assert certificate.key not in repr(certificate)


def test_each_cluster_has_a_key_of_its_own() -> None:
    assert make_certificate().key != make_certificate().key


def test_machines_whose_clocks_are_an_hour_behind_accept_a_certificate() -> None:
    parsed = x509.load_pem_x509_certificate(make_certificate().text.encode())
    behind = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    assert parsed.not_valid_before_utc < behind
