"""Programs that fail, hang, crash or lie: one clear error each, and nothing left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gnnloom.pipeline.partition.native import run as native
from gnnloom.pipeline.partition.native.program import RESULT, NativeProgram, PartitionRequest
from gnnloom.pipeline.partition.native.run import run_child
from gnnloom.pipeline.partition.partitioner import Preset
from gnnloom.storage import Catalog
from gnnloom.storage.errors import PartitionerError
from support.graphs import random_adjacency, store_graph
from support.hypergraphs import as_graph, partition, ring


def test_the_error_for_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "find_spec", lambda _: None)
    with pytest.raises(PartitionerError, match="pip install kahypar"):
        partition(ring(10), "kahypar", PartitionRequest(2, 0.01, 0))


@pytest.mark.parametrize("method", ["mtkahypar", "kahypar", "metis", "kaminpar"])
def test_a_partitioner_that_exceeds_its_memory_limit_fails_alone(method: str) -> None:
    problem = as_graph(ring(50)) if method in {"metis", "kaminpar"} else ring(50)
    with pytest.raises(PartitionerError, match=f"method {method}: ended with status") as caught:
        partition(problem, method, PartitionRequest(2, 0.01, 0, memory_limit=1 << 20))
    assert "with memory limited to 1 MiB (--memory-limit)" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_program_of_another_package_runs_in_the_child_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dealing.py").write_text(
        "import numpy, os\n"
        "def partition(request, folder):\n"
        "    (folder.parent / 'pid').write_text(str(os.getpid()))\n"
        "    return numpy.arange(12) % request.parts\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    program = NativeProgram("dealing", "numpy", "dealing", (Preset(),), bytes_per_pin=1)
    part = native.native_partition(ring(12), program, PartitionRequest(3, 0.01, 0), tmp_path)
    np.testing.assert_array_equal(part, np.arange(12) % 3)
    assert int((tmp_path / "pid").read_text()) != os.getpid()


def run_python(tmp_path: Path, code: str, time_limit: float | None = 20) -> NDArray[np.int64]:
    return run_child([sys.executable, "-c", code, str(tmp_path / RESULT)], tmp_path, "fake", time_limit)


@pytest.mark.parametrize("status", [0, 1, 137])
def test_a_missing_result_is_an_error_whatever_the_exit_status(tmp_path: Path, status: int) -> None:
    code = f"import os, sys; print('last words', file=sys.stderr, flush=True); os._exit({status})"
    with pytest.raises(
        PartitionerError, match=f"(?s)fake: ended with status {status} and left no.*last line of its output: last words"
    ):
        run_python(tmp_path, code)


@pytest.mark.parametrize("length", [100, 6_000, 100_000])
def test_a_long_error_of_a_partitioner_keeps_its_beginning_and_its_end(tmp_path: Path, length: int) -> None:
    code = f"print('before'); print('MemoryError: ' + 'x' * {length} + '; allow more')"
    with pytest.raises(PartitionerError, match=r"MemoryError: x+.*x+; ") as caught:
        run_python(tmp_path, code)
    shown = str(caught.value)
    assert len(shown) < 10_000
    assert ("characters left out" in shown) == (length == 100_000)


def test_a_killed_partitioner_is_reported_with_the_likely_cause(tmp_path: Path) -> None:
    with pytest.raises(PartitionerError, match=r"status -9 "):
        run_python(tmp_path, "import os; os.kill(os.getpid(), 9)")


def test_linux_kills_a_partitioner_before_its_parent_if_memory_runs_out() -> None:
    code = (
        "from gnnloom.pipeline.partition.native.child import die_first; die_first();"
        "print(open('/proc/self/oom_score_adj').read())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "1000"


def test_a_crashed_partitioner_is_reported_with_its_status(tmp_path: Path) -> None:
    with pytest.raises(PartitionerError, match="ended with status -11"):
        run_python(tmp_path, "import os; os.kill(os.getpid(), 11)")


@pytest.mark.slow
def test_a_partitioner_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time, pathlib;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        "pathlib.Path(sys.argv[1]).with_name('pid').write_text(str(child.pid));"
        "time.sleep(600)"
    )
    started = time.perf_counter()
    with pytest.raises(PartitionerError, match="no result after 3 seconds"):
        run_python(tmp_path, code, 3)
    assert time.perf_counter() - started < 15
    grandchild = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_running(grandchild))


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


def test_a_truncated_result_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PartitionerError, match="its result cannot be read"):
        run_python(tmp_path, "import sys; open(sys.argv[1], 'wb').write(b'\\x93NUMPY')")


def test_a_result_is_never_unpickled(tmp_path: Path) -> None:
    # The child writes a pickle, as a damaged or hostile one could: the parent refuses to open it.
    code = "import sys, numpy; numpy.save(sys.argv[1], numpy.array([{}], dtype=object), allow_pickle=True)"
    with pytest.raises(PartitionerError, match="its result cannot be read"):
        run_python(tmp_path, code)


@pytest.mark.slow
def test_the_partitioner_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, numpy as np;"
        "from gnnloom.pipeline.partition.model.hypergraph import Hypergraph;"
        "from gnnloom.pipeline.partition.methods import kahypar;"
        "from gnnloom.pipeline.partition.native import run as native, program;"
        "pin = np.random.default_rng(0).permuted(np.tile(np.arange(20000), (10, 1)), axis=1).reshape(-1);"
        "graph = Hypergraph(np.ones(20000, np.int64), np.arange(0, 200001, 10), pin.astype(np.int32));"
        "asked = program.PartitionRequest(64, 0.01, 0);"
        "native.native_partition(graph, kahypar.KAHYPAR, asked, pathlib.Path(sys.argv[1]))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    try:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        wait_until(lambda: bool(list(tmp_path.glob("*/preset.ini"))))
        child = int(children.read_text().split()[0])
        assert is_running(child)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    wait_until(lambda: not is_running(child))


def test_a_partitioner_whose_parent_has_ended_before_it_begins_does_not_begin(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gnnloom.pipeline.partition.native.child", "no.module", str(tmp_path)]
    done = subprocess.run([*command, str(2**22)], capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "has ended" in done.stderr


#: A partitioner dies with any process that is killed, as the test of its parent shows.
@pytest.mark.slow
@pytest.mark.parametrize(
    "ends_with",
    [signal.SIGTERM, *(pytest.param(each, marks=pytest.mark.long) for each in (signal.SIGINT, signal.SIGKILL))],
)
def test_a_killed_command_leaves_no_partitioner_behind(tmp_path: Path, ends_with: signal.Signals) -> None:
    dataset = Catalog(tmp_path / "catalog").create("web")
    store_graph(dataset, random_adjacency(20_000, 200_000, 1, symmetric=True), symmetric=True)
    command = [str(Path(sys.executable).with_name("gnnloom")), "--catalog", str(tmp_path / "catalog"), "partition"]
    command += ["web", "--parts", "64", "--method", "kahypar", "--workers", "0"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: bool(started_by(process.pid)))
            (child,) = started_by(process.pid)
        finally:
            process.send_signal(ends_with)
        assert process.wait(30) == {signal.SIGTERM: 143, signal.SIGINT: 130}.get(ends_with, -ends_with)
    wait_until(lambda: not is_running(child))


def started_by(pid: int) -> list[int]:
    """Partitioners that a process has started."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found if b"native.child" in Path(f"/proc/{child}/cmdline").read_bytes()]


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    pytest.fail("the condition did not come true within a minute")
