"""Native partitioners behind one function: hypergraph in, part vector out, whatever the native code does.

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
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.hypergraph import Hypergraph
from gnnloom.pipeline.partitioners.guard import (
    check_hypergraph,
    check_part,
    check_parts,
    fill_empty_parts,
    native_weights,
)
from gnnloom.pipeline.partitioners.hmetis import write_hmetis
from gnnloom.pipeline.partitioners.request import HYPERGRAPH, RESULT, PartitionRequest
from gnnloom.storage.errors import BudgetError, PartitionerError

LOGGER = logging.getLogger("gnnloom.pipeline")

_CHILD = "gnnloom.pipeline.partitioners.child"
_OUTPUT = "output.txt"
_TAIL_BYTES = 2000
#: Peak of Mt-KaHyPar per pin, and of its gain cache per vertex and part, in bytes; measured.
_BYTES_PER_PIN = 141
_BYTES_PER_GAIN = 4


def native_partition(
    hypergraph: Hypergraph, method: str, request: PartitionRequest, scratch: Path, time_limit: float | None = None
) -> NDArray[np.int32]:
    """Partition a hypergraph with a native partitioner.

    Args:
        method: ``mtkahypar`` or ``kahypar``.
        scratch: folder for files that only live until the partitioner is done.
        time_limit: seconds after which the partitioner is killed; None waits for ever.

    Returns:
        (num_vertices,) int32 parts, each part with at least one vertex.

    Raises:
        InputError: more parts than vertices, or the hypergraph's arrays do not fit together.
        BudgetError: the hypergraph has more pins or vertices than native code counts.
        PartitionerError: it failed, hung, or left no usable result.
    """
    check_parts(request.parts, hypergraph.num_vertices)
    check_hypergraph(hypergraph)
    if request.parts == 1:
        return np.zeros(hypergraph.num_vertices, dtype=np.int32)
    if request.parts == hypergraph.num_vertices:
        return np.arange(hypergraph.num_vertices, dtype=np.int32)
    if not hypergraph.num_nets:
        return _spread(hypergraph.vertex_weight, request.parts)
    part = _in_child(hypergraph, method, request, scratch, time_limit)
    fill_empty_parts(part, hypergraph.vertex_weight, request.parts)
    return part


def _spread(weight: NDArray[np.int64], parts: int) -> NDArray[np.int32]:
    """Parts of vertices that no net joins: the heaviest first, there and back over the parts."""
    there_and_back = np.concatenate([np.arange(parts), np.arange(parts)[::-1]]).astype(np.int32)
    part = np.empty(len(weight), dtype=np.int32)
    part[np.argsort(-weight, kind="stable")] = np.resize(there_and_back, len(weight))
    return part


def _in_child(
    hypergraph: Hypergraph, method: str, request: PartitionRequest, scratch: Path, time_limit: float | None
) -> NDArray[np.int32]:
    if find_spec(method) is None:
        raise PartitionerError(f"method {method}: the Python package {method} is not installed; pip install {method}")
    LOGGER.info("%s: %s pins into %s parts", method, f"{hypergraph.num_pins:,}", f"{request.parts:,}")
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name)
        request.write(folder)
        write_hmetis(folder / HYPERGRAPH, hypergraph, native_weights(hypergraph.vertex_weight))
        command = [sys.executable, "-m", _CHILD, method, name]
        part = run_child(command, folder, method, time_limit)
        check_part(part, hypergraph.num_vertices, request.parts, folder / RESULT)
    return part.astype(np.int32)


def run_child(command: Sequence[str], folder: Path, method: str, time_limit: float | None) -> NDArray[np.int64]:
    """Run a command that leaves a part vector in ``folder``, and read it.

    The exit status says nothing: a partitioner that gives up can exit with 0.

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
            f"method {method}: ended with status {status} and left no partition; its last words:\n{_tail(folder)}"
        )
    try:
        return np.asarray(np.load(folder / RESULT, allow_pickle=False))
    except (OSError, ValueError) as error:
        raise PartitionerError(f"method {method}: its result cannot be read ({error})") from error


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it started, and wait for it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(folder: Path) -> str:
    output = (folder / _OUTPUT).read_bytes()[-_TAIL_BYTES:]
    return output.decode(errors="replace").strip() or "(none)"


def check_native_memory(num_pins: int, num_vertices: int, parts: int) -> None:
    """Raise BudgetError for what would drive this machine out of memory; call it before building a hypergraph."""
    page = os.sysconf("SC_PAGE_SIZE")
    available = max(os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PHYS_PAGES") // 2) * page
    needed = _BYTES_PER_PIN * num_pins + _BYTES_PER_GAIN * num_vertices * parts
    if needed > available:
        raise BudgetError(
            f"hypergraph: {num_pins:,} pins into {parts:,} parts take about {needed / 2**30:,.1f} GiB, this machine has"
            f" {available / 2**30:,.1f} GiB for it; use method random or block, or a machine with more memory"
        )
