"""What all tests share: a catalog in a temporary folder, and the real graphs where they are there."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnnloom.storage import Catalog

#: The files that take longest. They go first, so that no worker is left alone with one of them at the end.
_LONGEST = (
    "workflows/run/test_run_mpi.py",
    "trainer/training/test_exactness.py",
    "trainer/models/test_models.py",
    "trainer/operators/test_algorithms.py",
    "workflows/run/test_run_mpi_refused.py",
    "workflows/test_documents.py",
    "trainer/training/test_lifecycle.py",
    "workflows/test_real_graphs.py",
    "workflows/cli/test_cli.py",
    "pipeline/partition/test_partition.py",
    "trainer/training/test_resume.py",
    "workflows/run/test_run.py",
    "workflows/run/test_named_run.py",
    "workflows/test_pinned_results.py",
    "workflows/doctor/test_doctor.py",
    "pipeline/ingest/test_ingest_resume.py",
    "trainer/training/test_tasks.py",
    "test_collection.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    place = {tests / name: number for number, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


@pytest.fixture(autouse=True, scope="session")
def heard_interrupts() -> None:
    """A shell that starts the tests in the background has Ctrl-C ignored, which the programs they start inherit."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path / "catalog")


@pytest.fixture(autouse=True)
def untouched_loggers() -> Iterator[None]:
    """The command line sets up gnnloom's loggers for its whole process, which here is that of the next test, too."""
    before = {logger.name: _setting(logger) for logger in _own_loggers()}
    yield
    for logger in _own_loggers():
        level, propagate, handlers = before.get(logger.name, (logging.NOTSET, True, []))
        logger.setLevel(level)
        logger.propagate = propagate
        logger.handlers = handlers


def _own_loggers() -> list[logging.Logger]:
    return [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.split(".")[0] == "gnnloom"]


def _setting(logger: logging.Logger) -> tuple[int, bool, list[logging.Handler]]:
    return logger.level, logger.propagate, list(logger.handlers)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the real graphs that lies beside the checkout."""
    path = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"no real graphs at {path}")
    return path
