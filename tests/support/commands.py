"""Runs commands of gnnloom in processes forked from one that has imported everything, and kills them by role.

What the harnesses share (:mod:`support.kills`, :mod:`support.flips`, :mod:`support.soak` and the state machine over a
dataset): a command and its processes, what it printed, and the digests of what it left. Training on one rank runs in
the process of the command; more ranks are forked from the server of :mod:`support.mpi`.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import logging
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import psutil

import gnnloom.trainer.job.launch as launcher
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.faults import forget_plans
from gnnloom.storage.shards.grid_window import load_kernels
from gnnloom.storage.shared_memory import SHARED_MEMORY, unused_files
from gnnloom.trainer.comm.transports.mpi import find_mpiexec
from gnnloom.workflows.cli import main as command_line
from support.lone_training import LoneLauncher
from support.mpi import rank_command, running_ranks

#: Time in which everything that a killed command started must be gone, in seconds.
GONE_SECONDS = 60.0
#: Longest time of a command on a tiny graph, in seconds; on a busy machine.
LONGEST_SECONDS = 300.0
#: What gnnloom's one line for an error begins with; click's own for wrong usage.
_REPORTED = re.compile(r"^(error|Error): .", re.MULTILINE)
#: Roles of processes by what their command lines contain; the first that fits counts.
_ROLES = (
    ("spawn_main", "worker"),
    ("native.child", "partitioner"),
    ("native/child", "partitioner"),
    ("resource_tracker", "tracker"),
    ("mpiexec", "launcher"),
    ("hydra_pmi_proxy", "launcher"),
)
#: Modules that commands import when they need them, and those of commands that only long sessions ask.
_LATE = (
    "gnnloom.trainer.training.loop", "gnnloom.trainer.training.predict", "gnnloom.storage.checks.verify",
    "gnnloom.storage.upkeep.archive", "numcodecs.blosc", "zarr",
)  # fmt: skip
_LATE_IN_LONG = (
    "gnnloom.pipeline.cluster.processes", "gnnloom.workflows.report.build", "pyarrow.csv", "pyarrow.parquet",
    "pandas", "matplotlib.backends.backend_agg",
)  # fmt: skip
#: Seconds between two looks at the processes of a command, and at whether it has ended.
_LOOK_SECONDS, _POLL_SECONDS = 0.03, 0.003


def load_commands(*, ranks: bool = True) -> None:
    """Import what commands import, so that forked ones need not.

    Args:
        ranks: start the server of ranks as well, for trainings on several; false for short sessions.
    """
    if ranks:
        rank_command()
    for name, _ in command_line._COMMANDS.values():
        importlib.import_module(f"gnnloom.workflows.cli.{name}")
    for name in (*_LATE, *(_LATE_IN_LONG if ranks else ())):
        importlib.import_module(name)
    load_kernels()
    # Collections in the children would write to every object, and copy the memory that they share with this process.
    gc.freeze()


class Command:
    """A command that runs in a process of its own."""

    def __init__(
        self,
        folder: Path,
        catalog: Path,
        words: Sequence[str],
        *,
        opened: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start ``gnnloom --catalog CATALOG WORDS``.

        Args:
            folder: for what the command prints.
            opened: file in which the process lists the files of the catalog that it opened.
        """
        self.words = list(words)
        self._catalog, self._opened, self._environment = catalog, opened, dict(environment or {})
        self._output, self._errors = folder / "output.txt", folder / "errors.txt"
        self._started = set[psutil.Process]()
        #: Files in shared memory that the processes had mapped when some of them were killed.
        self.shared_memory = set[Path]()
        self.code: int | None = None
        sys.stdout.flush()
        self.number = os.fork()
        if self.number == 0:
            self._become()

    def _become(self) -> NoReturn:
        """Be the command, in the forked process."""
        code: Any = 1
        try:
            os.setsid()
            for path, number in ((self._output, 1), (self._errors, 2)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            # A test has other files under these names.
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
            os.environ.update(self._environment)
            forget_plans()
            # Nothing simulates a power failure.
            skipped: Any = lambda _: None  # noqa: E731
            os.fsync = skipped
            self._run()
            code = 0
        except SystemExit as error:
            code = error.code or 0
        except BaseException:  # noqa: BLE001 - nothing may reach the code that forked this process
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code if isinstance(code, int) else 1)

    def _run(self) -> None:
        names: set[str] = set()
        if self._opened is not None:
            _record_opened(self._catalog, names)
        sys.argv = ["gnnloom", "--catalog", str(self._catalog), *self.words]
        # Spawned workers import the main module, which for them should be the command's, not the harness's.
        sys.modules["__main__"] = command_line
        launcher.rank_python = rank_command
        launcher._launch = _alone_or(launcher._launch)
        logging.getLogger("gnnloom").handlers = []
        try:
            command_line.main()
        finally:
            if self._opened is not None:
                self._opened.write_text("\n".join(sorted(names)))

    def ends_within(self, seconds: float) -> bool:
        """Whether the command ends within a time; waits for it."""
        deadline = time.monotonic() + seconds
        while self.code is None:
            number, status = os.waitpid(self.number, os.WNOHANG)
            if number:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                return False
            else:
                time.sleep(_POLL_SECONDS)
        return True

    def finish(self, seconds: float = LONGEST_SECONDS) -> int:
        """Wait for the end, and kill what takes too long; returns the exit code."""
        if not self.ends_within(seconds):
            self.kill("all", random.Random(0))
            self.ends_within(GONE_SECONDS)
            raise TimeoutError(f"still running after {seconds:.0f} s: {self}\n{self.log()}")
        assert self.code is not None
        return self.code

    def watch(self) -> dict[str, float]:
        """Wait for the end; returns for how many seconds a process of each role was there."""
        seen: dict[str, tuple[float, float]] = {}
        began = time.monotonic()
        while not self.ends_within(_LOOK_SECONDS):
            now = time.monotonic()
            for role in self.roles():
                seen[role] = (seen.get(role, (now, now))[0], now)
            if now - began > LONGEST_SECONDS:
                self.finish(0)
        return {role: last - first for role, (first, last) in seen.items()}

    def roles(self) -> dict[str, list[psutil.Process]]:
        """The command's processes: the client, the workers, and so on. Counts ranks of other commands, too."""
        found: dict[str, list[psutil.Process]] = {}
        if self.code is None:
            own = psutil.Process(self.number)
            started = [*own.children(recursive=True), *running_ranks()]
            self._started.update(started)
            for process in started:
                if role := _role(process):
                    found.setdefault(role, []).append(process)
            found.setdefault(self._own_role, []).append(own)
        return found

    _own_role = "client"

    def waits_for(self, role: str) -> bool:
        """Wait until there is a process of a role; false if the command ends before."""
        while not self.ends_within(_LOOK_SECONDS):
            if role in self.roles():
                return True
        return False

    def kill(self, role: str, chosen: random.Random) -> bool:
        """Kill a process of a role, or ``all`` of them; returns whether there was one."""
        roles = self.roles()
        everything = {process for processes in roles.values() for process in processes} | self._started
        self.shared_memory |= {path for process in everything for path in _mapped_shared_memory(process)}
        targets = sorted(everything if role == "all" else roles.get(role, ()), key=lambda process: process.pid)
        return _kill(targets if role == "all" else targets and [chosen.choice(targets)])

    def orphans(self) -> list[psutil.Process]:
        """Processes that the command started and that did not end with it; they are killed."""
        _, alive = psutil.wait_procs(self._started, GONE_SECONDS)
        _kill(alive)
        return list(alive)

    def log(self) -> str:
        """What the command has written to its standard error."""
        return self._errors.read_text(errors="replace") if self._errors.exists() else ""

    def output(self) -> str:
        """What the command has written to its standard output."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def complaint(self) -> str:
        """What is wrong with the way in which the command ended (a traceback, a crash, no error); empty if nothing."""
        if "Traceback (most recent" in self.log():
            return "traceback"
        if self.code is not None and self.code < 0:
            return f"killed by {signal.Signals(-self.code).name}"
        if self.code and not _REPORTED.search(self.log()) and not self.output():
            return "no error"
        return ""

    def __str__(self) -> str:
        return f"gnnloom --catalog {self._catalog} {' '.join(self.words)}"


class JobCommand(Command):
    """A command on the ranks of an MPI job of its own, of which rank 1 is the client and the last ranks are nannies."""

    ranks = 4
    _own_role = "launcher"

    def _run(self) -> None:
        words = ["--catalog", str(self._catalog), *self.words, "--cluster", "mpi"]
        program = [*rank_command(), "-m", "gnnloom.workflows.cli.main", *words]
        command = [find_mpiexec(), "-n", str(self.ranks), *program]
        os.execve(command[0], command, launcher.rank_environment(self.ranks, 1))


def _alone_or(start: Any) -> Any:
    """The function that starts ranks, replaced by training in this process if it is to start one."""
    alone: Any = LoneLauncher()
    return lambda action, content, ranks, *rest: (alone if ranks == 1 else start)(action, content, ranks, *rest)


def _role(process: psutil.Process) -> str:
    """Role of a process of a command; empty if it stands for another process or is gone."""
    try:
        words = process.cmdline()
        line = " ".join(words)
        for text, role in _ROLES:
            if text in line:
                return role
        # A rank is a child of the server; what MPI's launcher has started only waits for it.
        if not line or "-S" in words or "rank_server.py" not in line:
            return ""
        below = [" ".join(child.cmdline()) for child in process.children()]
        return "nanny" if any("spawn_main" in each for each in below) else "rank"
    except psutil.Error:
        return ""


def _kill(processes: Iterable[psutil.Process]) -> bool:
    killed = False
    for process in processes:
        try:
            process.send_signal(signal.SIGKILL)
            killed = True
        except psutil.NoSuchProcess:
            continue
    return killed


def _record_opened(folder: Path, names: set[str]) -> None:
    """Note every file below a folder that this process opens from now on."""
    start = f"{folder}{os.sep}"

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | os.PathLike):
            name = os.fspath(arguments[0])
            if isinstance(name, str) and name.startswith(start):
                names.add(name.removeprefix(start))

    sys.addaudithook(note)


def catalog_facts(catalog: Path, name: str = "web", run: str | None = "run") -> dict[str, Any]:
    """Digests of complete artifacts, of every chunk on disk and of the predictions, and the losses of a run."""
    dataset = Catalog(catalog)[name]
    facts: dict[str, Any] = artifact_digests(dataset)
    for path in dataset.path.rglob("c/**/*"):
        name = str(path.relative_to(catalog))
        # What a killed command was writing or removing has a name that begins with a dot.
        if path.is_file() and not any(part.startswith(".") for part in Path(name).parts):
            facts[name] = file_digest(path)
    if run is not None:
        facts["loss"] = str(json.loads((dataset.run_path(run) / "result.json").read_text())["loss"])
    return facts


def artifact_digests(dataset: Dataset) -> dict[str, str]:
    """Digest of every complete artifact, by kind and key."""
    return {
        f"{info.kind}/{info.key}": dataset.find(info.kind, info.key).digest
        for info in dataset.artifacts()
        if info.state == "complete"
    }


def file_digest(path: Path) -> str:
    """Digest of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _mapped_shared_memory(process: psutil.Process) -> set[Path]:
    """Files in shared memory that a process has mapped."""
    try:
        lines = Path(f"/proc/{process.pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    names = (line.split(maxsplit=5)[5:] for line in lines)
    return {Path(name[0]) for name in names if name and name[0].startswith(f"{SHARED_MEMORY}/")}


def unused_shared_memory() -> set[Path]:
    """Everything in shared memory that no process uses."""
    return {*unused_files(SHARED_MEMORY, ("",))}


@contextmanager
def kept_if_bad(name: str) -> Iterator[Path]:
    """A new temporary folder, which is removed at the end of the block unless an error or an exit leaves the block."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    try:
        yield folder
    except BaseException:
        say(f"kept: {folder}")
        raise
    shutil.rmtree(folder)


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
