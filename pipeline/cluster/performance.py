"""Dask's own report on what its workers did and when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from gnnloom.storage.errors import InputError, MissingPackageError


def check_report(file: Path | None, workers: int | None) -> None:
    """Check that a report can be written, before anything runs.

    Raises:
        InputError: the file's folder does not exist, or there are no workers to report on.
        MissingPackageError: bokeh, which Dask needs for the report, is not installed.
    """
    if file is None:
        return
    if workers == 0:
        raise InputError("a performance report is about worker processes; pass --workers 1 or more")
    if not file.absolute().parent.is_dir():
        raise InputError(f"{file}: no folder {file.absolute().parent}; create it first")
    if find_spec("bokeh") is None:
        raise MissingPackageError("a performance report needs bokeh: `pip install 'gnnloom[report]'`")


@contextmanager
def reported(file: Path | None) -> Iterator[None]:
    """Report on what the current Dask client's cluster does inside the ``with`` block, if there is a file for it."""
    if file is None:
        yield
        return
    from distributed import performance_report  # noqa: PLC0415 - takes a second to import

    with performance_report(filename=str(file)):
        yield
