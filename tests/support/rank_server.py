"""Forks test ranks from a process that has already loaded torch and the kernels, which takes seconds.

``python rank_server.py SOCKET ranks`` listens there until its standard input ends, and then removes the socket's
folder. With ``partitioners``, it forks the processes in which native libraries partition, which have NumPy loaded.
What stands for ``python -m mpi4py``, rank_client.py, asks for a child that becomes the rank. MPI starts in the child,
so a rank is as fresh as any.
"""

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib.util
import marshal
import os
import pkgutil
import re
import runpy
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator
from typing import Any

_LIBC = ctypes.CDLL(None)
#: Rooms with the classes of algorithms, models, modes, samplers and tasks, of which a rank imports those that it uses.
_ROOMS = (
    "gnnloom.storage.sampling", "gnnloom.trainer.data", "gnnloom.trainer.models.networks",
    "gnnloom.trainer.modes.epochs",
    "gnnloom.trainer.operators", "gnnloom.trainer.tasks.objectives", "gnnloom.trainer.training.rehearsal",
)  # fmt: skip
#: Programs of commands, of harnesses, which run commands, and of clusters.
_WITH_COMMANDS = re.compile("workflows|/tests/support/|/tests/pipeline/cluster/")
#: Numbers from here on are free in the server, whatever the number of its ranks.
_ASIDE = 512


def serve(path: str, what: str) -> None:
    """Fork a rank for every connection; returns in the forked process only, ready to run the rank's program.

    Args:
        what: ``ranks``, or ``partitioners``, which are forked from a smaller process, because Mt-KaHyPar asks Linux to
            move all pages of its own.
    """
    if what == "ranks":
        _load()
    else:
        _load_partitioners()
    # Collections in the children would write to every object, and copy the memory that they share with this process.
    gc.freeze()
    selector = selectors.DefaultSelector()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(_ASIDE)
    selector.register(listening, selectors.EVENT_READ)
    selector.register(0, selectors.EVENT_READ)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        for key, _ in selector.select():
            if key.fileobj == 0:
                shutil.rmtree(os.path.dirname(path))  # noqa: PTH120
                os._exit(0)
            if key.fileobj is listening:
                request = _fork(selector, listening.accept()[0])
                if request is not None:
                    _take_over(*request)
                    return
            elif callable(key.data):
                key.data()
            else:
                _answer(selector, key)


def _load() -> None:
    """Import what ranks import, at once or for what they train, apart from MPI, which starts when it is imported."""
    import numcodecs  # noqa: F401
    import torch.utils._device  # noqa: F401

    # Not the program itself, gnnloom.trainer.__main__: running a module that is imported already prints a warning.
    import gnnloom.trainer.comm.ending
    import gnnloom.trainer.comm.transports.mpi
    import gnnloom.trainer.job.arguments
    import gnnloom.trainer.job.stop
    import gnnloom.trainer.kernels.c.edge_softmax
    import gnnloom.trainer.planner.candidates
    import gnnloom.trainer.training.loop
    import gnnloom.trainer.training.predict
    import gnnloom.trainer.training.propagate  # noqa: F401
    from gnnloom.storage.disk import files
    from gnnloom.storage.runs import checkpoint
    from gnnloom.storage.shards.grid_window import load_kernels
    from support.this_thread import ThisThread

    load_kernels()
    # Loads MPI's library, which takes most of the start of a rank, and does not start it.
    mpi = importlib.util.find_spec("mpi4py.MPI")
    assert mpi is not None
    ctypes.CDLL(mpi.origin)
    # As in the process of the tests, no thread is started for a disk that is not waited for, and no checkpoint's files
    # are opened for it.
    vars(files)["ThreadPoolExecutor"] = ThisThread
    vars(checkpoint)["sync_tree"] = lambda _: None
    for room in _ROOMS:
        for module in pkgutil.iter_modules(importlib.import_module(room).__path__, f"{room}."):
            importlib.import_module(module.name)
    # Ending what torch has registered here would write to memory that the children share with this process, too.
    for ending in list(vars(weakref.finalize)["_registry"]):
        ending.atexit = False


def _load_partitioners() -> None:
    """Import what partitioners import before their native libraries, which only they themselves load."""
    import gnnloom.pipeline.partition.methods.kahypar
    import gnnloom.pipeline.partition.methods.metis
    import gnnloom.pipeline.partition.native.ka_min_par
    import gnnloom.pipeline.partition.native.mt_kahypar  # noqa: F401


def _load_commands() -> None:
    """Import what commands and harnesses import, once: most servers fork only ranks that train."""
    import distributed  # noqa: F401 - ranks of a recipe are a cluster

    from support.commands import load_commands

    load_commands(ranks=False)


def _fork(selector: selectors.BaseSelector, connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork the rank that a connection asks for; returns the request and its files in the forked process only."""
    size, files, _, _ = socket.recv_fds(connection, 8, 8)
    content = b""
    while len(content) < int.from_bytes(size, "little") and (piece := connection.recv(1 << 16)):
        content += piece
    if not size or len(content) < int.from_bytes(size, "little"):
        # The client was killed, as a partitioner is that runs out of time.
        connection.close()
        for file in files:
            os.close(file)
        return None
    request = marshal.loads(content)
    if any(_WITH_COMMANDS.search(argument) for argument in request["arguments"]):
        _load_commands()
    starts, started = os.pipe()
    process = os.fork()
    if process == 0:
        connection.close()
        os.close(starts)
        _close_all(selector)
        _while_mpi_starts(started)
        return request, files
    os.close(started)
    for file in files:
        os.close(file)
    handle = os.pidfd_open(process)
    _end_with_parent(selector, handle, request["parent"], starts)
    selector.register(handle, selectors.EVENT_READ, (process, connection, handle))
    # Readable when the other side passes on a signal or is gone: killed by MPI's launcher, as its rank must be then.
    selector.register(connection, selectors.EVENT_READ, (process, connection, handle))
    return None


def _while_mpi_starts(started: int) -> None:
    """In a rank: tell the server that MPI has started, by the end of the file ``started``."""
    mpi = sys.modules.get("gnnloom.trainer.comm.transports.mpi")
    # The numbers of the other files are for files of the rank.
    kept = os.fdopen(fcntl.fcntl(started, fcntl.F_DUPFD_CLOEXEC, _ASIDE), "wb", 0)
    os.close(started)
    if mpi is None:
        kept.close()  # a process that partitions
        return

    @contextlib.contextmanager
    def starting() -> Iterator[None]:
        yield
        kept.close()

    vars(mpi)["_ending_with_parent"] = starting


def _end_with_parent(selector: selectors.BaseSelector, rank: int, parent: int, starts: int) -> None:
    """Until MPI has started, kill a rank if the process ends that would be its parent if it were not forked.

    As `gnnloom.trainer.comm.transports.mpi.join` asks the system to do, for which this server is the parent.

    Args:
        rank: a handle of its process; ``starts``: a file that ends when MPI has started or the rank has ended.
    """
    own = os.dup(rank)
    watched = [starts]

    def stop() -> None:
        if watched:
            for file in watched:
                selector.unregister(file)
                os.close(file)
            os.close(own)
            watched.clear()

    def end() -> None:
        if watched:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(own, signal.SIGKILL)
            stop()

    selector.register(starts, selectors.EVENT_READ, stop)
    try:
        watched.append(os.pidfd_open(parent))
    except ProcessLookupError:
        end()
    else:
        selector.register(watched[-1], selectors.EVENT_READ, end)


def _answer(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    """Pass a signal on to a rank, or end what belongs to it."""
    process, connection, handle = key.data
    if connection.fileno() < 0:
        return  # both of a rank's events came at once, and the first one was enough
    if key.fd == connection.fileno():
        passed = connection.recv(1)
        os.kill(process, passed[0] if passed else signal.SIGKILL)
        if passed:
            return
    _, status = os.waitpid(process, 0)
    selector.unregister(connection)
    selector.unregister(handle)
    os.close(handle)
    with connection, contextlib.suppress(BrokenPipeError):
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "little", signed=True))


def _close_all(selector: selectors.BaseSelector) -> None:
    """Close the server's files in a forked process, which would otherwise keep them open for the other ranks."""
    for file in [key.fileobj for key in selector.get_map().values()]:
        if isinstance(file, socket.socket):
            file.close()
        elif isinstance(file, int) and file != 0:
            os.close(file)
    selector.close()


def _take_over(request: dict[str, Any], files: list[int]) -> None:
    """Make this process look as if it had been started where the request comes from."""
    # Moved out of the way first, so that none is closed by another one's move.
    aside = [fcntl.fcntl(file, fcntl.F_DUPFD, _ASIDE) for file in files]
    for file in files:
        os.close(file)
    for file, target in zip(aside, request["files"], strict=True):
        os.dup2(file, target)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    # It is looked up once, and the environment may name another one.
    tempfile.tempdir = None
    # A Python that is started there would have these on its path.
    sys.path[:0] = [request["folder"], *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    sys.argv = ["mpi4py", *request["arguments"]]


def _end(code: int) -> None:
    """End this process as Python and mpi4py do, but leave its objects alone.

    To free them is to write to all the memory that is shared with the server, which takes longer than most ranks run.
    """
    # Known to no type checker; it ends the threads of executors and waits for all others, as Python does first.
    vars(threading)["_shutdown"]()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        if code:
            # A rank that fails ends the whole job.
            mpi.COMM_WORLD.Abort(code)
        mpi.Finalize()
    # MPI's library says goodbye to its launcher when the process ends in this way.
    _LIBC.exit(code)


if __name__ == "__main__":
    serve(*sys.argv[1:])
    # Libraries that the rank loads end before this is called; those that the server had loaded have nothing to end.
    _LIBC.on_exit(ctypes.cast(_LIBC._exit, ctypes.c_void_p), None)
    code = 0
    try:
        runpy.run_module("mpi4py", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        # Python itself prints what else a program ends with.
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    _end(code)
