"""Becomes a rank that the server of tests/support/rank_server.py forks, as ``python rank_client.py SOCKET ARGUMENTS``.

It stands for ``python -m mpi4py ARGUMENTS``: it hands its arguments, environment and open files to the server, whose
child is the rank, and ends as that child ends. Tests start hundreds, so it imports only what is built into Python:
modules such as ``socket`` and ``json`` take longer than all that it does.
"""

import _signal  # type: ignore[import-not-found] # known to no type checker
import _socket
import marshal
import os
import sys

#: Files that a rank inherits: the standard ones, and the connection to MPI's process manager.
_STANDARD_FILES = (0, 1, 2)


def become_rank(path: str, arguments: list[str]) -> None:
    """Have the server start the rank, wait for its end and end in the same way."""
    files = [*_STANDARD_FILES, *([int(os.environ["PMI_FD"])] if "PMI_FD" in os.environ else [])]
    request = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109
        "files": files,
        "parent": os.getppid(),
    }
    content = marshal.dumps(request)
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    server.connect(path)
    numbers = b"".join(file.to_bytes(4, sys.byteorder) for file in files)
    server.sendmsg([len(content).to_bytes(8, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
    server.sendall(content)
    # MPI's launcher passes it on to the ranks, which are asked to stop by it.
    _signal.signal(_signal.SIGUSR1, lambda number, _: server.sendall(bytes([number])))
    status = int.from_bytes(server.recv(4), "little", signed=True)
    if status < 0:
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    become_rank(sys.argv[1], sys.argv[2:])
