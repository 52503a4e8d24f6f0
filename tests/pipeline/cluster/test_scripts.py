"""A script starts worker processes wherever it stands: they do not run the script again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: Starts a process as Dask does, in a folder of its own or in a package.
STARTS = """
import multiprocessing, time
from gnnloom.pipeline.cluster.open_cluster import script_left_alone

print("the script runs", flush=True)
before = __file__, __spec__
with script_left_alone():
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(0,))
    process.start()
    process.join()
assert process.exitcode == 0
assert before == (__file__, __spec__)
"""
#: Its own function runs on a worker.
OF_THE_SCRIPT = """
from distributed import get_client
from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster

print("the script runs", flush=True)

def double(number):
    return 2 * number

{guard}
    with open_cluster(ClusterOptions(workers=1)):
        assert get_client().submit(double, 2).result() == 4
"""
STAGES = """
import gnnloom

print("the script runs", flush=True)
tiny = gnnloom.generate("tiny", "sbm", vertices=60, edges=200, workers=1)
gnnloom.partition(tiny, parts=2, workers=1)
gnnloom.shard(tiny, parts=2, workers=1)
"""


def run(folder: Path, text: str, *, as_module: bool = False) -> None:
    package = folder / "own"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").touch()
    (package / "script.py").write_text(text)
    program = ["-m", "own.script"] if as_module else [str(package / "script.py")]
    done = subprocess.run(
        [sys.executable, *program], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the script runs") == 1


@pytest.mark.parametrize("as_module", [False, True])
def test_a_process_does_not_run_the_script_again(tmp_path: Path, as_module: bool) -> None:
    run(tmp_path, STARTS, as_module=as_module)


@pytest.mark.long
@pytest.mark.parametrize("as_module", [False, True])
def test_stages_start_workers_in_the_body_of_a_script(tmp_path: Path, as_module: bool) -> None:
    run(tmp_path, STAGES, as_module=as_module)


@pytest.mark.long
@pytest.mark.parametrize("guard", ["if True:", 'if __name__ == "__main__":'])
def test_workers_run_functions_of_the_script(tmp_path: Path, guard: str) -> None:
    run(tmp_path, OF_THE_SCRIPT.format(guard=guard))
