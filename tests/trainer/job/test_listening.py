"""Ranks of one machine are not reachable from others."""

from __future__ import annotations

from support.mpi import TESTS, run_ranks


def test_ranks_listen_on_the_loopback_interface_only() -> None:
    done = run_ranks(2, str(TESTS / "trainer/programs/listening.py"))
    assert done.returncode == 0, done.stderr
    found = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("LISTENS")}
    # The launcher's own port, which its ranks inherit, is the only one on every interface.
    assert found <= {"127.0.0.1", "0.0.0.0"}
