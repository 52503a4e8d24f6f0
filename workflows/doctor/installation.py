"""All checks of the doctor, in the order in which it runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from gnnloom.workflows.doctor.finding import Verdict, run_check
from gnnloom.workflows.doctor.machine import (
    check_catalog,
    check_cores,
    check_disk_space,
    check_disk_speed,
    check_memory,
    check_shared_memory,
)
from gnnloom.workflows.doctor.software import (
    check_kernels,
    check_mpi,
    check_packages,
    check_python,
    check_sparse_product,
)


def examine(folder: Path) -> Iterator[Verdict]:
    """Run every check, each when its finding is requested.

    Args:
        folder: the catalog's folder, which may not exist; its file system is measured.
    """
    checks: tuple[tuple[str, Callable[[], Verdict]], ...] = (
        ("python", check_python),
        ("packages", check_packages),
        ("cores", check_cores),
        ("memory", check_memory),
        ("shared memory", check_shared_memory),
        ("kernels", check_kernels),
        ("sparse product", check_sparse_product),
        ("mpi", check_mpi),
        ("catalog", lambda: check_catalog(folder)),
        ("disk space", lambda: check_disk_space(folder)),
        ("disk speed", lambda: check_disk_speed(folder)),
    )
    for name, check in checks:
        yield run_check(name, check)
    # Imported late: the checks above must work even if these imports fail.
    from gnnloom.workflows.doctor.partitioners import check_partitioners

    yield from check_partitioners()
