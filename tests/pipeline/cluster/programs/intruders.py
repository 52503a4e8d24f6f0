"""A cluster of MPI ranks, and others on the network that try to give it work. The client prints what became of them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import dask
import psutil
from distributed import Client, Security
from distributed.comm.core import connect

from gnnloom.pipeline.cluster.certificate import Certificate, make_certificate
from gnnloom.pipeline.cluster.interfaces import loopback
from gnnloom.pipeline.cluster.mpi_cluster import serve_ranks
from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.tasks.cluster import DEFAULT_MEMORY
from support.web_pages import web_servers


def square(item: int) -> int:
    return item * item


def security(certificate: Certificate) -> Security:
    """What an intruder configures who has a certificate."""
    with dask.config.set(certificate.settings()):
        return Security()


def attempt(address: str, chosen: Security) -> str:
    """Connect to a part of the cluster, as an intruder would; returns how that ended."""

    async def connect_once() -> None:
        await (await connect(address, timeout=1, **chosen.get_connection_args("client"))).close()

    try:
        asyncio.run(connect_once())
    except OSError as error:
        return f"refused: {error}"
    return "connected"


def outcomes() -> dict[str, Any]:
    """What others get who connect to the scheduler, to a worker and to its nanny."""
    with open_cluster(ClusterOptions("mpi", workers=1)) as cluster:
        results = sorted(cluster.map(square, [1, 2, 3]))
        client = Client.current()
        ((worker, about),) = client.scheduler_info()["workers"].items()
        addresses = [client.scheduler.address, worker, about["nanny"]]
        stranger, plain = security(make_certificate()), Security(require_encryption=False, tls_ca_file=None)
        return {
            "results": results,
            "addresses": addresses,
            "plain": [attempt(address.replace("tls://", "tcp://"), plain) for address in addresses],
            "another certificate": [attempt(address, stranger) for address in addresses],
            "web servers": web_servers(psutil.Process().parent() or psutil.Process()),
            "own certificate": [attempt(address, client.security) for address in addresses],
        }


if __name__ == "__main__":
    # Workers, which are not ranks, import this file too.
    from mpi4py import MPI

    comm = MPI.COMM_WORLD.Dup()
    if serve_ranks(comm, comm.Get_size(), loopback(), DEFAULT_MEMORY, dashboard=False):
        Path(sys.argv[1]).write_text(json.dumps(outcomes()))
    comm.Free()
