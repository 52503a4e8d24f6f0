"""Runs a native partitioner: hypergraph or graph in, part vector or error out, even if the native code crashes.

Native partitioners hold the interpreter's lock, exit, crash, hang, and count with 32 bits.  So they run in a child
process with a time limit, on checked inputs, and their result is checked as well.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.measure.balance import fill_empty_parts, native_imbalance, repair_balance, spread
from gnnloom.pipeline.partition.model.adjacency_graph import AdjacencyGraph
from gnnloom.pipeline.partition.model.hypergraph import Hypergraph, net_matrices
from gnnloom.pipeline.partition.native.graph_arrays import save_graph
from gnnloom.pipeline.partition.native.guard import (
    OTHER_METHODS,
    check_memory,
    check_part,
    check_problem,
    native_weights,
)
from gnnloom.pipeline.partition.native.problem_files import write_hmetis, write_metis
from gnnloom.pipeline.partition.native.program import GIVEN, GRAPH, HYPERGRAPH, RESULT, NativeProgram, PartitionRequest
from gnnloom.pipeline.partition.partitioner import PartitionProblem
from gnnloom.pipeline.partition.settings import PartitionSettings, check_parts
from gnnloom.storage.disk.numpy_files import load_array
from gnnloom.storage.disk.own_folder import own_folder
from gnnloom.storage.errors import PartitionerError
from gnnloom.storage.machine_memory import memory_text
from gnnloom.storage.system_errors import check_is_of_content
from gnnloom.storage.wording import counted, shortened

LOGGER = logging.getLogger("gnnloom.pipeline")

_CHILD = "gnnloom.pipeline.partition.native.child"
_OUTPUT = "output.txt"
#: Bytes at the end of a program's output in which its last line is looked for, and most characters of it in an error.
_TAIL_BYTES, _MOST_SHOWN = 1 << 20, 8000
#: Seconds between two looks at whether the program has ended.
_LOOK_SECONDS = 0.02
_OTHER_MODEL = "use model hypergraph with method multilevel, or more memory"


def native_partition(
    problem: Hypergraph | AdjacencyGraph,
    program: NativeProgram,
    request: PartitionRequest,
    scratch: Path,
    time_limit: float | None = None,
    given: NDArray[np.int32] | None = None,
) -> NDArray[np.int32]:
    """Partition a hypergraph or a graph with a native program, or improve given parts.

    Args:
        scratch: folder for files that are removed when the program ends.
        time_limit: seconds after which the program is killed; None waits forever.
        given: (num_vertices,) int32 parts of a hypergraph that ``request.improve`` V-cycles improve; only for presets
            that can.

    Returns:
        (num_vertices,) int32 parts, each part with at least one vertex.  Parts heavier than requested are repaired
        if light vertices allow it.

    Raises:
        InputError: there are more parts than vertices, or the problem's arrays do not fit together.
        BudgetError: the problem has more pins or vertices than the program can count.
        PartitionerError: the program is not installed, failed, hung, or left no usable result.
    """
    parts, weight = request.parts, problem.vertex_weight
    check_parts(parts, problem.num_vertices)
    check_problem(problem, program.limit)
    if parts == 1:
        return np.zeros(problem.num_vertices, dtype=np.int32)
    if parts == problem.num_vertices:
        return np.arange(problem.num_vertices, dtype=np.int32)
    if not problem.size:
        return spread(weight, parts)
    # Trivial cases were answered above: native programs get at least two parts, and fewer parts than vertices.
    part = _in_child(problem, program, request, scratch, time_limit, given)
    # In this order, because the repair never takes the last vertex of a part.  Both use the original weights; the
    # program may have seen scaled ones.
    fill_empty_parts(part, weight, parts)
    moved = repair_balance(part, weight, parts, request.imbalance)
    if moved:
        LOGGER.info("%s: moved %s light vertices out of parts that were too heavy", program.name, f"{moved:,}")
    return part


def _in_child(
    problem: Hypergraph | AdjacencyGraph,
    program: NativeProgram,
    request: PartitionRequest,
    scratch: Path,
    time_limit: float | None,
    given: NDArray[np.int32] | None,
) -> NDArray[np.int32]:
    method = program.name
    # Looks for the package without importing it: the parent never loads native code.
    if find_spec(program.package) is None:
        raise PartitionerError(
            f"method {method}: the Python package {program.package} is not installed; {program.install}"
        )
    LOGGER.info("%s: %s pins or neighbors into %s parts", method, f"{problem.size:,}", f"{request.parts:,}")
    with own_folder(within=scratch) as folder:
        weight = native_weights(problem.vertex_weight, program.limit)
        imbalance = native_imbalance(weight, request.parts, request.imbalance)
        replace(request, imbalance=imbalance, graph=isinstance(problem, AdjacencyGraph)).write(folder)
        _write_problem(folder, problem, weight, program)
        if given is not None:
            np.save(folder / GIVEN, given, allow_pickle=False)
        command = child_command(_CHILD, program.module, str(folder))
        part = run_child(command, folder, method, time_limit, request.memory_limit)
        check_part(part, problem.num_vertices, request.parts, folder / RESULT)
    return part.astype(np.int32)


def _write_problem(
    folder: Path, problem: Hypergraph | AdjacencyGraph, weight: NDArray[np.int64], program: NativeProgram
) -> None:
    if isinstance(problem, Hypergraph):
        write_hmetis(folder / HYPERGRAPH, problem, weight)
    elif program.takes_arrays:
        save_graph(folder / GRAPH, problem, weight)
    else:
        write_metis(folder / GRAPH, problem, weight)


def child_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module in a process of its own, whose last argument is this process's number."""
    # -P: files of the current folder must not replace modules that the process imports.
    return [sys.executable, "-P", "-m", module, *arguments, str(os.getpid())]


def run_child(
    command: Sequence[str], folder: Path, method: str, time_limit: float | None, memory_limit: int | None = None
) -> NDArray[np.int64]:
    """Run a command that leaves a part vector in ``folder``, and read the vector.

    The exit status is ignored, because a partitioner that gives up may exit with 0.

    Args:
        method: name of the method, for messages.
        memory_limit: bytes that the command may allocate, for the message if it fails.

    Returns:
        The array that the command left, whatever its shape and type.

    Raises:
        PartitionerError: the command took longer than ``time_limit`` seconds, or left no result.
    """
    in_time, status = run_program(command, folder, time_limit)
    if not in_time:
        raise PartitionerError(
            f"method {method}: no result after {time_limit:g} seconds; allow more with --time-limit, or choose another"
            " method"
        )
    if not (folder / RESULT).exists():
        raise PartitionerError(
            f"method {method}: ended with status {status}{_likely_cause(status, memory_limit)} and left no partition;"
            f" last line of its output: {last_line(folder)}"
        )
    try:
        return np.asarray(load_array(folder / RESULT))
    except (OSError, ValueError) as error:
        check_is_of_content(error, folder / RESULT)
        raise PartitionerError(
            f"method {method}: its result cannot be read ({error}); choose another method"
        ) from error


def run_program(command: Sequence[str], folder: Path, time_limit: float | None = None) -> tuple[bool, int]:
    """Run a command until it ends, for at most ``time_limit`` seconds; its output goes to a file in ``folder``.

    Returns:
        Whether it ended in time, and its exit status.
    """
    # Output goes to a file: a pipe that nobody reads would block the program once it is full.  The new session makes
    # the child the leader of a process group, so one signal ends everything that it started.
    with (folder / _OUTPUT).open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            in_time = _ends_within(process, time_limit)
        finally:
            # Also after success and on an interrupt: no process that the program started may stay behind. The child
            # has not been waited for: its number, which is the group's, could then belong to others.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
    return in_time, status


def _likely_cause(status: int, memory_limit: int | None) -> str:
    causes = {-signal.SIGKILL: " (killed, usually because memory ran out)", -signal.SIGXFSZ: " (ulimit -f: raise it)"}
    killed = causes.get(status, "")
    limit = "" if memory_limit is None else f", with memory limited to {memory_text(memory_limit)} (--memory-limit),"
    return killed + limit


def _ends_within(process: subprocess.Popen[bytes], seconds: float | None) -> bool:
    """Wait for the process to end; return whether it ended in time. Does not reap it, so its id is not reused."""
    end = math.inf if seconds is None else time.monotonic() + seconds
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() >= end:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def last_line(folder: Path) -> str:
    """The last line of the program's output that is not empty; of a traceback, the error."""
    with (folder / _OUTPUT).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
    return shortened(next((line.strip() for line in reversed(lines) if line.strip()), "(none)"), _MOST_SHOWN)


@dataclass(frozen=True)
class NativeProblem(PartitionProblem):
    """A problem for a native program.

    Attributes:
        program: partitions the hypergraphs and graphs that are made of the problem.
    """

    program: NativeProgram

    @classmethod
    def of(cls, problem: PartitionProblem, program: NativeProgram) -> Self:
        """The same problem for a program."""
        return cls(**{field.name: getattr(problem, field.name) for field in fields(problem)}, program=program)

    @property
    def num_pins(self) -> int:
        """Pins of the hypergraph; an upper bound, because rows may already hold their own vertex."""
        matrices = net_matrices(self.graph, self.transpose, self.options.directions)
        return sum(matrix.nnz + matrix.num_vertices for matrix in matrices)

    def native(
        self, hypergraph: Hypergraph | AdjacencyGraph, given: NDArray[np.int32] | None = None
    ) -> NDArray[np.int32]:
        """(num_vertices,) int32 parts of a hypergraph or a graph, by the program with the preset of the options.

        Args:
            given: parts to improve; returned unchanged if the preset cannot improve any.
        """
        options = self.options
        if given is not None and not self.program.preset(options.preset).improves:
            return given
        request = replace(PartitionRequest.of(options), improve=int(given is not None))
        return native_partition(hypergraph, self.program, request, self.scratch, options.time_limit, given)

    def check_memory(self, size: int) -> None:
        """Raise BudgetError if the program would not fit in memory with ``size`` pins or entries."""
        check_program_memory(self.program, size, self.graph.num_vertices, self.options)


def check_program_memory(program: NativeProgram, size: int, num_vertices: int, options: PartitionSettings) -> None:
    """Raise BudgetError if a program would not fit in memory.

    Args:
        size: pins or entries of the problem.
    """
    # Only native programs offer the stochastic model.
    way_out = _OTHER_MODEL if options.model == "stochastic" else OTHER_METHODS
    what = f"method {program.name}: {counted(size, 'pin')} into {counted(options.parts, 'part')}"
    needed = program.memory(options.preset, size, num_vertices, options.parts)
    check_memory(what, needed, options.memory_limit, way_out)
