"""What all tests share: a catalog in a temporary folder, and the real graphs where they are there."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from gnnloom.storage import Catalog
from support.added_packages import install_added
from support.mpi import forked_child, rank_command
from support.this_thread import ThisThread

# Read when torch is loaded. Tests share the cores already, and a product of tiny matrices would wait for other threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# As in ranks. Threads that spin while they wait would take the cores from other tests.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# All ranks are on this machine, and looking for networks takes a quarter of the time in which MPI starts.
os.environ.setdefault("UCX_TLS", "self,posix")

# How long an example takes depends on what else the machine does.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

#: Rooms whose files come first, because they have slow tests, of which none should run alone at the end.
_FIRST = ("workflows", "trainer", "pipeline")
#: Folders of the tests of each top folder, and of what imports it; files beside them always run.
_CONCERNED = {
    "storage": {"storage", "pipeline", "trainer", "workflows", "scale"},
    "pipeline": {"pipeline", "workflows", "scale"},
    "trainer": {"trainer", "workflows", "scale"},
    "workflows": {"workflows"},
}
#: How many of the slowest tests are listed, and where.
_SLOWEST, _DURATIONS = 60, Path(__file__).parents[1] / "build" / "durations.txt"
#: Folder of a `sitecustomize`, which every Python loads that finds it on its path.
_UNSYNCED = Path(__file__).parent / "support" / "unsynced"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rooms", default="", help="only tests of these top folders and of what imports them")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let all tests of packages that extend gnnloom share one process; None for other ways to distribute tests."""
    if config.getoption("dist") != "loadfile":
        return None
    # xdist itself is there, as it calls this.
    from support.scheduling import FilesTogether

    return FilesTogether(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the files by room, and leave out those that ``--rooms`` does not concern."""
    rooms = {room: number for number, room in enumerate(_FIRST)}
    items.sort(key=lambda item: rooms.get(_room(item), len(rooms)))
    asked = config.getoption("--rooms").replace(",", " ").split()
    if unknown := set(asked) - _CONCERNED.keys():
        raise pytest.UsageError(f"--rooms {' '.join(sorted(unknown))}: choose from {', '.join(_CONCERNED)}")
    if asked:
        kept = set().union(*(_CONCERNED[room] for room in asked))
        left_out = [item for item in items if _room(item) in _CONCERNED["storage"] - kept]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _room(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the slowest tests, with what each of them set up, so that a slow suite need not be measured again."""
    if hasattr(config, "workerinput"):
        return
    seconds: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
    if not seconds:
        return
    _DURATIONS.parent.mkdir(exist_ok=True)
    slowest = sorted(seconds.items(), key=lambda item: -item[1])[:_SLOWEST]
    lines = [f"{duration:8.2f}  {test}\n" for test, duration in slowest]
    _DURATIONS.write_text("".join([f"{sum(seconds.values()):8.2f}  {len(seconds)} tests\n", *lines]))


def pytest_configure() -> None:
    """Look for no garbage while modules are imported, which make objects and no garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave out what the tests import, and the tests themselves, when garbage is looked for: a tenth of the time."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """Look for the garbage of all tests once, and leave out what is kept where pytest does so five times more."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def heard_interrupts() -> None:
    """A shell that starts the tests in the background has Ctrl-C ignored, which the programs they start inherit."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def disk_that_is_not_waited_for() -> Iterator[None]:
    """Skip fsync, here and in all Python processes that tests start: no test simulates a power failure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        # Nothing is waited for, so that starting threads for it would take a sixth of the time of the pipeline's tests.
        patch.setattr("gnnloom.storage.disk.files.ThreadPoolExecutor", ThisThread)
        # To name and to open every file that a task wrote takes a tenth of that time. Processes that tests start do.
        patch.setattr("gnnloom.storage.format.artifact.sync_paths", lambda _: None)
        # As it takes a tenth of that of a training on a tiny graph, for its checkpoint.
        patch.setattr("gnnloom.storage.runs.checkpoint.sync_tree", lambda _: None)
        patch.setenv("PYTHONPATH", str(_UNSYNCED), prepend=os.pathsep)
        yield


@pytest.fixture(autouse=True, scope="session")
def forked_ranks() -> Iterator[None]:
    """Fork the ranks that commands in this process start, rather than have each import torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gnnloom.trainer.job.launch.rank_python", rank_command)
        yield


@pytest.fixture(autouse=True, scope="session")
def forked_partitioners() -> Iterator[None]:
    """Fork the processes in which this one partitions, rather than have each import NumPy."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("native.run", "stochastic.batch_partition"):
            patch.setattr(f"gnnloom.pipeline.partition.{name}.child_command", forked_child)
        yield


@pytest.fixture(scope="session")
def added_packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of processes that find other packages, which extend gnnloom."""
    return install_added(tmp_path_factory.mktemp("site"))


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path / "catalog")


@pytest.fixture(autouse=True)
def untouched_loggers() -> Iterator[None]:
    """The command line sets up gnnloom's loggers for its whole process, which here is that of the next test, too."""
    # A fixture of a whole module may have run a command before this one.
    _set(logging.getLogger("gnnloom"), logging.NOTSET, True, [])
    before = {logger.name: _setting(logger) for logger in _own_loggers()}
    yield
    for logger in _own_loggers():
        _set(logger, *before.get(logger.name, (logging.NOTSET, True, [])))


def _own_loggers() -> list[logging.Logger]:
    return [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.split(".")[0] == "gnnloom"]


def _setting(logger: logging.Logger) -> tuple[int, bool, list[logging.Handler]]:
    return logger.level, logger.propagate, list(logger.handlers)


def _set(logger: logging.Logger, level: int, propagate: bool, handlers: list[logging.Handler]) -> None:
    if _setting(logger) == (level, propagate, handlers):
        return  # to set a level empties the caches of all loggers of the process, most of which belong to others
    logger.setLevel(level)
    logger.propagate = propagate
    logger.handlers = handlers


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the real graphs that lies beside the checkout."""
    path = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"no real graphs at {path}")
    return path
