"""Native partitioners behind one function: hypergraph or graph in, part vector out, whatever the native code does.

They hold the interpreter's lock, exit, crash, hang and count with 32 bits.  So they run in a child
process with a time limit, on inputs that were checked, and their result is checked again.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.adjacency_graph import AdjacencyGraph
from gnnloom.pipeline.partition.balance import fill_empty_parts, native_imbalance, repair_balance, spread
from gnnloom.pipeline.partition.hypergraph import Hypergraph
from gnnloom.pipeline.partition.native.budget import memory_text
from gnnloom.pipeline.partition.native.graph_file import save_graph, write_metis
from gnnloom.pipeline.partition.native.guard import check_part, check_parts, check_problem, native_weights
from gnnloom.pipeline.partition.native.hmetis import write_hmetis
from gnnloom.pipeline.partition.native.request import GIVEN, GRAPH, HYPERGRAPH, RESULT, PartitionRequest
from gnnloom.pipeline.partition.presets import METHODS
from gnnloom.storage.errors import PartitionerError

LOGGER = logging.getLogger("gnnloom.pipeline")

_CHILD = "gnnloom.pipeline.partition.native.child"
_OUTPUT = "output.txt"
_TAIL_BYTES = 2000


def native_partition(
    problem: Hypergraph | AdjacencyGraph,
    method: str,
    request: PartitionRequest,
    scratch: Path,
    time_limit: float | None = None,
    given: NDArray[np.int32] | None = None,
) -> NDArray[np.int32]:
    """Partition a hypergraph or a graph with a native partitioner, or improve given parts of it.

    Args:
        method: one of ``NATIVE_METHODS``.
        scratch: folder for files that only live until the partitioner is done.
        time_limit: seconds after which the partitioner is killed; None waits for ever.
        given: (num_vertices,) parts that ``request.improve`` V-cycles improve (hypergraphs, by a method that can).

    Returns:
        (num_vertices,) int32 parts, each part with at least one vertex.  Parts that came out heavier than asked
        for are repaired where light vertices allow it.

    Raises:
        InputError: more parts than vertices, or the problem's arrays do not fit together.
        BudgetError: the problem has more pins or vertices than native code counts.
        PartitionerError: it failed, hung, or left no usable result.
    """
    parts, weight = request.parts, problem.vertex_weight
    check_parts(parts, problem.num_vertices)
    check_problem(problem)
    if parts == 1:
        return np.zeros(problem.num_vertices, dtype=np.int32)
    if parts == problem.num_vertices:
        return np.arange(problem.num_vertices, dtype=np.int32)
    if not problem.size:
        return spread(weight, parts)
    part = _in_child(problem, method, request, scratch, time_limit, given)
    fill_empty_parts(part, weight, parts)
    moved = repair_balance(part, weight, parts, request.imbalance)
    if moved:
        LOGGER.info("%s: moved %s light vertices out of parts that were too heavy", method, f"{moved:,}")
    return part


def _in_child(
    problem: Hypergraph | AdjacencyGraph,
    method: str,
    request: PartitionRequest,
    scratch: Path,
    time_limit: float | None,
    given: NDArray[np.int32] | None,
) -> NDArray[np.int32]:
    package = METHODS[method].package
    if find_spec(package) is None:
        raise PartitionerError(f"method {method}: the Python package {package} is not installed; pip install {package}")
    LOGGER.info("%s: %s pins or neighbors into %s parts", method, f"{problem.size:,}", f"{request.parts:,}")
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name)
        weight = native_weights(problem.vertex_weight)
        imbalance = native_imbalance(weight, request.parts, request.imbalance)
        replace(request, imbalance=imbalance, graph=isinstance(problem, AdjacencyGraph)).write(folder)
        _write_problem(folder, problem, weight, method)
        if given is not None:
            np.save(folder / GIVEN, given, allow_pickle=False)
        command = [sys.executable, "-m", _CHILD, method, name]
        part = run_child(command, folder, method, time_limit, request.memory_limit)
        check_part(part, problem.num_vertices, request.parts, folder / RESULT)
    return part.astype(np.int32)


def _write_problem(folder: Path, problem: Hypergraph | AdjacencyGraph, weight: NDArray[np.int64], method: str) -> None:
    if isinstance(problem, Hypergraph):
        write_hmetis(folder / HYPERGRAPH, problem, weight)
    elif method == "metis":
        save_graph(folder / GRAPH, problem, weight)
    else:
        write_metis(folder / GRAPH, problem, weight)


def run_child(
    command: Sequence[str], folder: Path, method: str, time_limit: float | None, memory_limit: int | None = None
) -> NDArray[np.int64]:
    """Run a command that leaves a part vector in ``folder``, and read it.

    The exit status says nothing: a partitioner that gives up can exit with 0.

    Args:
        memory_limit: bytes that the command keeps to, for the message when it fails.

    Raises:
        PartitionerError: the command took longer than ``time_limit`` seconds, or left no result.
    """
    with (folder / _OUTPUT).open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(time_limit)
        except subprocess.TimeoutExpired:
            raise PartitionerError(
                f"method {method}: no result after {time_limit:g} seconds; give it more time or choose another method"
            ) from None
        finally:
            _kill_group(process)
    if not (folder / RESULT).exists():
        raise PartitionerError(
            f"method {method}: ended with status {status}{_likely_cause(status, memory_limit)} and left no partition;"
            f" its last words: {_last_words(folder)}"
        )
    try:
        return np.asarray(np.load(folder / RESULT, allow_pickle=False))
    except (OSError, ValueError) as error:
        raise PartitionerError(f"method {method}: its result cannot be read ({error})") from error


def _likely_cause(status: int, memory_limit: int | None) -> str:
    killed = " (killed, most often for want of memory)" if status == -signal.SIGKILL else ""
    limit = "" if memory_limit is None else f", its memory limited to {memory_text(memory_limit)} (--memory-limit),"
    return killed + limit


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it started, and wait for it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_words(folder: Path) -> str:
    """The last line of its output: of a traceback, what went wrong."""
    lines = (folder / _OUTPUT).read_bytes()[-_TAIL_BYTES:].decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "(none)")
