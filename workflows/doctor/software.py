"""Checks of installed software: Python, packages, compiled kernels and MPI."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import cast

import numpy as np

from gnnloom.storage.errors import GnnloomError, MissingPackageError
from gnnloom.storage.kernel_cache import KERNEL_CACHE
from gnnloom.storage.kernels import Kernel
from gnnloom.storage.wording import shell_command
from gnnloom.workflows.doctor.finding import FAILED, OK, Verdict

_PACKAGES = ("numpy", "scipy", "numba", "zarr", "numcodecs", "pyarrow", "dask", "distributed", "torch", "mpi4py")
_MPI_SECONDS = 60
#: A product of a tenth of a second in the slowest kernel, with a dense matrix of 1 MiB.
_PRODUCT_ROWS, _PRODUCT_NONZEROS, _PRODUCT_WIDTH = 4096, 4096 * 64, 64
_RANK_PROGRAM = (
    "from mpi4py import MPI; c = MPI.COMM_WORLD; s = c.allreduce(c.rank + 1);"
    " print(f'sum {s}', flush=True) if c.rank == 0 else None"
)


def check_python() -> Verdict:
    """Check that Python is 64-bit; pip checks its version."""
    found = f"{sys.version.split(maxsplit=1)[0]} at {sys.executable}"
    if sys.maxsize < 1 << 40:
        return Verdict("python", FAILED, f"{found}, 32-bit", "use a 64-bit Python")
    return Verdict("python", OK, found)


def check_packages() -> Verdict:
    """Check that the required packages are installed and can be imported."""
    versions, missing = [], []
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
            importlib.import_module(package)
        # A shared library that is missing or broken may raise OSError or RuntimeError.
        except (PackageNotFoundError, ImportError, OSError, RuntimeError) as error:
            missing.append(f"{package} ({error})")
    if missing:
        return Verdict("packages", FAILED, f"cannot import {', '.join(missing)}", "reinstall: `pip install gnnloom`")
    return Verdict("packages", OK, ", ".join(versions))


def check_kernels() -> Verdict:
    """Check that a kernel compiles here and gives the right result."""
    # Imported here, so that a broken numba is a finding of this check and does not end the doctor.
    from gnnloom.storage.matrix.fingerprint import scan_rows

    matrix = np.random.default_rng(0).random((40, 40)) < 0.2
    columns, indptr = np.nonzero(matrix)[1], np.concatenate([[0], np.cumsum(matrix.sum(axis=1))]).astype(np.int64)
    symmetric = matrix | matrix.T
    # No values stand for a matrix without weights.
    values = np.empty(0, np.uint32)
    started = time.perf_counter()
    wrong = scan_rows(indptr, 0, columns, values, 0, -1, 40, False)[3]
    symmetric_indptr = np.concatenate([[0], np.cumsum(symmetric.sum(axis=1))]).astype(np.int64)
    # The fingerprints of a symmetric matrix and of its transpose must agree.
    forward, backward, _, _ = scan_rows(symmetric_indptr, 0, np.nonzero(symmetric)[1], values, 0, -1, 40, False)
    if wrong != -1 or forward != backward:
        return Verdict("kernels", FAILED, "a compiled kernel gives a wrong result", "install another version of numba")
    stats = cast("Kernel", scan_rows).stats
    kept = f"{stats.cache_path}{f' ({KERNEL_CACHE})' if KERNEL_CACHE in os.environ else ''}"
    return Verdict("kernels", OK, f"compiled and correct in {time.perf_counter() - started:.1f} s, kept in {kept}")


def check_sparse_product() -> Verdict:
    """Check the kernel of sparse products against SciPy, and measure its speed."""
    import scipy.sparse
    import torch

    from gnnloom.storage.matrix.csr import CSR
    from gnnloom.trainer.kernels.dispatch import sparse_product, sparse_product_kernel
    from gnnloom.trainer.place.place import Place

    rng = np.random.default_rng(0)
    indptr = np.arange(0, _PRODUCT_NONZEROS + 1, _PRODUCT_NONZEROS // _PRODUCT_ROWS)
    columns = rng.integers(0, _PRODUCT_ROWS, _PRODUCT_NONZEROS).astype(np.int32)
    dense = torch.ones((_PRODUCT_ROWS, _PRODUCT_WIDTH))
    dense[:, 0] = torch.arange(_PRODUCT_ROWS)
    # Filled first: fresh memory may still hold the correct result of an earlier product.
    out = torch.full_like(dense, torch.nan)
    try:
        product = sparse_product(CSR(0, indptr, columns, None, _PRODUCT_ROWS), Place(dense.dtype))
    except MissingPackageError as error:
        return Verdict("sparse product", FAILED, str(error), "install a C compiler, and then gnnloom again")
    seconds = []
    # The first product loads the library.
    for _ in range(4):
        started = time.perf_counter()
        product.multiply(dense, out, torch.empty(0))
        seconds.append(time.perf_counter() - started)
    pattern = scipy.sparse.csr_array((np.ones(len(columns)), columns, indptr), shape=(_PRODUCT_ROWS, _PRODUCT_ROWS))
    kernel = sparse_product_kernel()
    # Sums of small whole numbers are exact.
    if not np.array_equal(pattern @ dense.double().numpy(), out.double().numpy()):
        return Verdict("sparse product", FAILED, f"{kernel} gives a wrong result", "install gnnloom again")
    rate = _PRODUCT_NONZEROS * _PRODUCT_WIDTH / min(seconds[1:]) / 1e9
    found = f"{kernel}, {rate:.1f} billion additions per second on one thread"
    return Verdict("sparse product", OK, found)


def check_mpi() -> Verdict:
    """Start two ranks that add their numbers."""
    from gnnloom.trainer.comm.transports import mpi
    from gnnloom.trainer.job.launch import rank_environment

    try:
        launcher = mpi.find_mpiexec()
    except GnnloomError as error:
        return Verdict("mpi", FAILED, str(error), "`pip install mpich mpi4py`")
    command = [launcher, "-n", "2", *mpi.TRANSPORT.python, "-c", _RANK_PROGRAM]
    started = time.perf_counter()
    try:
        # In separate processes, because a broken MPI may hang or crash the process that starts it.
        done = subprocess.run(
            command,
            env=rank_environment(2),
            # The launcher would pass the user's standard input on to rank 0.
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_MPI_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        fix = f"try `{shell_command(*command[:3], 'hostname')}`"
        return Verdict("mpi", FAILED, f"2 ranks did not finish within {_MPI_SECONDS} s", fix)
    # If mpi4py and the launcher belong to different MPIs, each process is a separate job, which succeeds with sum 1.
    if done.returncode != 0 or "sum 3" not in done.stdout:
        output = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or [f"exit code {done.returncode}"]
        fix = f"mpi4py and {launcher} must belong to the same MPI: `pip install mpich mpi4py` installs both"
        return Verdict("mpi", FAILED, f"2 ranks could not add their numbers: {output[0]}", fix)
    return Verdict("mpi", OK, f"2 ranks in {time.perf_counter() - started:.1f} s with {launcher}")
