"""The sparse product against torch's CSR product (MKL), torch's spmm_reduce and SciPy, and against memory bandwidth.

    python tests/benchmarks/bench_spmm.py [--scale small|full] [--graphs rmat,lattice] [--widths 16,64,128,256]
                                          [--threads N] [--repeats N] [--clock wall|processor]

Two graphs: R-MAT (Graph500's parameters, 16 edges per vertex, both directions, self loops) and a square lattice in
natural order. gnnloom multiplies in float32 and in bfloat16. Both are compared with the float32 products of the others
(torch's CSR product has no bfloat16), and bfloat16 with spmm_reduce's bfloat16 as well; SciPy has one thread only.
All of them take turns in one process, whose allocator keeps its memory, so that no result is faulted in again. gnnloom
writes into a buffer that exists; the others have no such option, and get their results from what the allocator kept.

STREAM's triad (a = b + s c, in C with stores around the caches, as many threads) takes its turn among the products. A
product moves at least the dense matrix, the output, the column ids and the row pointers once; its fraction of STREAM is
the rate of these bytes over that of the triad. Times and fractions are those of medians, ratios are given for medians
and for the fastest runs, which other programs on the machine disturb least. On a busy machine, ``--clock processor
--threads 1`` measures processor time instead; with several threads it would include the time in which they spin.

Prints a table, then lines ``RESULT name value unit``, and lines ``GOAL`` that say whether a goal is met. Then the work
of one rank whose blocks have few entries (see hypersparse.py).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from ctypes import CDLL, c_int, c_int64, c_void_p
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from allocator import KEPT
from hypersparse import report_hypersparse

#: Scale of the R-MAT graph, side of the lattice, elements of one array of the triad, repetitions.
SCALES = {"small": (14, 300, 1 << 23, 5), "full": (17, 1000, 1 << 25, 15)}
PEERS = ("csr", "spmm_reduce", "spmm_reduce bf16", "scipy")
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}
#: Ratios on R-MAT from this width on: the float32 products of the peers over gnnloom's product of each type.
FASTER: dict[str, dict[str, float]] = {
    "float32": {"csr": 4, "spmm_reduce": 3},
    "bfloat16": {"csr": 6, "spmm_reduce": 5},
}
FASTER_FROM = 64
#: Share of STREAM's triad on the lattice, in float32.
OF_STREAM = 0.8

_TRIAD = r"""
#include <stdint.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif
void triad(float *a, const float *b, const float *c, int64_t n, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i += 16)
#ifdef __SSE2__
        for (int64_t j = i; j < i + 16; j += 4)
            _mm_stream_ps(a + j, _mm_add_ps(_mm_load_ps(b + j), _mm_mul_ps(_mm_set1_ps(3), _mm_load_ps(c + j))));
#else
        for (int64_t j = i; j < i + 16; j++) a[j] = b[j] + 3 * c[j];
#endif
}
"""


def main() -> None:
    options = _options()
    if any(os.environ.get(name) != value for name, value in KEPT.items()):
        # The allocator reads its settings when the process starts.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEPT})
    import torch

    warnings.filterwarnings("ignore", message="Sparse")
    torch.set_num_threads(options.threads)
    scale, side, elements, repeats = SCALES[options.scale]
    triad = _Triad(elements, options.threads)
    results = []
    goals = []
    graphs: dict[str, Callable[[], Any]] = {"rmat": partial(_rmat, scale), "lattice": partial(_lattice, side)}
    for graph in options.graphs:
        matrix = graphs[graph]()
        print(f"\n{graph}: {matrix.num_rows:,} vertices, {matrix.nnz:,} nonzeros, {options.threads} threads")
        print(f"{'':14}{'gnnloom ms':>12}{'spread':>14}{'of STREAM':>11}" + "".join(f"{peer:>22}" for peer in PEERS))
        for width in options.widths:
            programs = _programs(matrix, width, options.threads) | {"triad": triad}
            times = _times(programs, options.repeats or repeats, CLOCKS[options.clock])
            for dtype in FASTER:
                results += _report(f"spmm_{graph}_{width}", dtype, times, _num_bytes(matrix, width, dtype), triad)
                goals += _goals(graph, width, dtype, times, _num_bytes(matrix, width, dtype) / triad.num_bytes)
    print("\n".join([*results, *goals]))
    report_hypersparse(1 << (16 if options.scale == "small" else 18), options.repeats or repeats)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("SCALE", "full"))
    parser.add_argument(
        "--widths", type=lambda text: [int(item) for item in text.split(",")], default=[16, 64, 128, 256]
    )
    parser.add_argument("--graphs", type=lambda text: text.split(","), default=["rmat", "lattice"])
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, help="products of each kind")
    return parser.parse_args()


def _rmat(scale: int) -> Any:
    """An R-MAT graph with random vertex ids, as a pattern."""
    import numpy as np
    import scipy.sparse

    rng, num_edges, n = np.random.default_rng(1), 16 << scale, 1 << scale
    ends = np.zeros((2, num_edges), np.int64)
    for _ in range(scale):
        draw = rng.random(num_edges)
        ends[0] = 2 * ends[0] + (draw >= 0.76)
        ends[1] = 2 * ends[1] + (((draw >= 0.57) & (draw < 0.76)) | (draw >= 0.95))
    one, other = rng.permutation(n)[ends]
    loops = np.arange(n)
    rows, columns = np.concatenate([one, other, loops]), np.concatenate([other, one, loops])
    return _pattern(scipy.sparse.coo_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(n, n)))


def _lattice(side: int) -> Any:
    """A square lattice, row by row, with self loops, as a pattern."""
    import numpy as np
    import scipy.sparse

    line = scipy.sparse.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(side, side))
    return _pattern(scipy.sparse.kronsum(line, line) + scipy.sparse.eye_array(side * side, dtype=np.float32))


def _pattern(matrix: Any) -> Any:
    import numpy as np
    import scipy.sparse

    from gnnloom.storage import CSR

    rows = scipy.sparse.csr_array(matrix)
    rows.sum_duplicates()
    return CSR(0, rows.indptr.astype(np.int64), rows.indices.astype(np.int32), None, rows.shape[1])


class _Triad:
    """STREAM's triad on arrays that are much larger than the caches."""

    def __init__(self, elements: int, threads: int) -> None:
        import torch

        self._arrays = [torch.ones(elements) for _ in range(3)]
        self._threads = threads
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder, "triad.c"), Path(folder, "triad.so")
            source.write_text(_TRIAD)
            subprocess.run(["cc", "-O3", "-fopenmp", "-shared", "-fPIC", "-o", target, source], check=True)
            self._run = CDLL(str(target)).triad
        self._run.argtypes = (c_void_p, c_void_p, c_void_p, c_int64, c_int)

    def __call__(self) -> None:
        self._run(*(array.data_ptr() for array in self._arrays), len(self._arrays[0]), self._threads)

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in self._arrays)


def _num_bytes(matrix: Any, width: int, dtype: str) -> int:
    """Bytes that a product has to move at least."""
    dense = 2 * matrix.num_rows * width * (4 if dtype == "float32" else 2)
    return int(dense + matrix.indices.nbytes + matrix.indptr.nbytes)


def _report(name: str, dtype: str, times: dict[str, list[float]], num_bytes: int, triad: _Triad) -> list[str]:
    """Print a line of the table; returns the lines of its results."""
    own = times[dtype]
    stream = triad.num_bytes / median(times["triad"])
    share = num_bytes / median(own) / stream
    ratios = {
        peer: (median(times[peer]) / median(own), min(times[peer]) / min(own))
        for peer in PEERS
        if dtype == "bfloat16" or peer != "spmm_reduce bf16"
    }
    cells = [
        f"{median(times[peer]) * 1e3:8.1f} {ratios[peer][0]:5.1f}x {ratios[peer][1]:5.1f}x" if peer in ratios else ""
        for peer in PEERS
    ]
    spread = f"{min(own) * 1e3:.1f}-{max(own) * 1e3:.1f}"
    width = name.rsplit("_", maxsplit=1)[1]
    head = f"{width:>4} {dtype:9}{median(own) * 1e3:12.1f}{spread:>14}{share:11.0%}"
    print(head + "".join(f"{cell:>22}" for cell in cells), flush=True)
    prefix = f"RESULT {name}_{dtype}"
    lines = [f"{prefix} {median(own) * 1e3:.4g} ms", f"{prefix}_of_stream {share:.3g} x"]
    for peer, (middle, fastest) in ratios.items():
        key = peer.replace(" ", "_")
        lines += [f"{prefix}_{key}_over_gnnloom {middle:.3g} x", f"{prefix}_{key}_over_gnnloom_fastest {fastest:.3g} x"]
    return [*lines, f"RESULT {name}_{dtype}_triad {stream / 1e9:.4g} GB/s"]


def _goals(graph: str, width: int, dtype: str, times: dict[str, list[float]], triads: float) -> list[str]:
    """A line for every goal of a product, which moves as many bytes as ``triads`` triads."""
    own = median(times[dtype])
    goals = {f"{peer} over gnnloom": (median(times[peer]) / own, least) for peer, least in FASTER[dtype].items()}
    if graph == "lattice":
        goals = {"of STREAM": (triads * median(times["triad"]) / own, OF_STREAM)} if dtype == "float32" else {}
    elif width < FASTER_FROM:
        goals = {}
    return [
        f"GOAL {graph} {width} {dtype}: {what} {ratio:.2f}x ({_met(ratio, least)}); at least {least}x"
        for what, (ratio, least) in goals.items()
    ]


def _met(ratio: float, least: float) -> str:
    return "met" if ratio >= least else "not met"


def _programs(matrix: Any, width: int, threads: int) -> dict[str, Callable[[], object]]:
    """The product in every program; all results are checked against each other."""
    import numpy as np
    import scipy.sparse
    import torch

    from gnnloom.trainer.kernels.dispatch import sparse_product
    from gnnloom.trainer.place.place import Place

    dense = torch.randn((matrix.num_columns, width), generator=torch.Generator().manual_seed(0))
    half, none = dense.bfloat16(), torch.empty(0)
    out, half_out = torch.empty((matrix.num_rows, width)), torch.empty((matrix.num_rows, width), dtype=torch.bfloat16)
    own, own_half = (sparse_product(matrix, Place(each.dtype, threads)) for each in (dense, half))
    indptr, indices = torch.from_numpy(matrix.indptr), torch.from_numpy(matrix.indices)
    shape, values = (matrix.num_rows, matrix.num_columns), torch.ones(matrix.nnz)
    # Pointers and columns have one type, of which int32 is the faster one.
    csr, csr_half = (
        torch.sparse_csr_tensor(indptr.int(), indices, given, shape) for given in (values, values.bfloat16())
    )
    sparse = scipy.sparse.csr_array((values.numpy(), matrix.indices, matrix.indptr.astype(np.int32)), shape)
    programs: dict[str, Callable[[], object]] = {
        "float32": lambda: own.multiply(dense, out, none),
        "csr": lambda: csr @ dense,
        "spmm_reduce": lambda: torch.sparse.mm(csr, dense, "sum"),
        "bfloat16": lambda: own_half.multiply(half, half_out, none),
        "spmm_reduce bf16": lambda: torch.sparse.mm(csr_half, half, "sum"),
        "scipy": lambda: sparse @ dense.numpy(),
    }
    # Some rows are enough, and take little memory next to the matrices.
    some = slice(None, None, 97)
    expected = torch.as_tensor(programs["scipy"]())[some].double()
    for name, program in programs.items():
        result = program()
        found = torch.as_tensor({"float32": out, "bfloat16": half_out}.get(name, result))[some]
        error = float((found.double() - expected).abs().max() / expected.abs().max())
        if error > 0.02:
            raise SystemExit(f"{name} differs from SciPy by {error:.3g}")
    return programs


def _times(
    programs: dict[str, Callable[[], object]], repeats: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds of every program, which take turns."""
    found: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(repeats):
        for name, program in programs.items():
            started = clock()
            program()
            found[name].append(clock() - started)
    return found


if __name__ == "__main__":
    main()
