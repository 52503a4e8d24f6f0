"""Dask's own report of what its workers did and when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from gnnloom.storage.errors import InputError, MissingPackageError


def check_report(file: Path | None, workers: int | None) -> None:
    """Check before anything runs that a report can be made.

    Raises:
        InputError: there is no folder for it, or there are no workers to report on.
        MissingPackageError: Dask needs bokeh for it.
    """
    if file is None:
        return
    if workers == 0:
        raise InputError("a performance report is of worker processes; give --workers 1 or more")
    if not file.absolute().parent.is_dir():
        raise InputError(f"{file}: there is no folder {file.absolute().parent}")
    if find_spec("bokeh") is None:
        raise MissingPackageError("a performance report needs bokeh: `pip install 'gnnloom[report]'`")


@contextmanager
def reported(file: Path | None) -> Iterator[None]:
    """Write what the current Dask client's cluster does meanwhile to an HTML file, if one is wanted."""
    if file is None:
        yield
        return
    from distributed import performance_report  # noqa: PLC0415 - takes a second to import

    with performance_report(filename=str(file)):
        yield
