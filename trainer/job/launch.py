"""Starts the ranks of a run on this machine and waits for them."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import IO, Any

from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.errors import GnnloomError, IncompleteError, InputError, LaunchError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.format.files import read_json, write_json
from gnnloom.storage.runs.run import Run, sole_writer
from gnnloom.trainer.config.train_config import PredictConfig, TrainConfig
from gnnloom.trainer.data.open_shards import open_source
from gnnloom.trainer.job.arguments import PREDICT
from gnnloom.trainer.job.exit_codes import EXIT_STOPPED
from gnnloom.trainer.job.signals import handling

logger = logging.getLogger(__name__)

#: Lines of the ranks' output that an error shows.
_LAST_LINES = 30


class StoppedError(LaunchError):
    """The run was asked to stop; it wrote a checkpoint and can be resumed."""

    exit_code = EXIT_STOPPED


#: How the ranks begin the one line that tells an error which all of them know of, and what it is by their exit code.
_ERROR = "error: "
_ERRORS: Mapping[int, type[GnnloomError]] = {kind.exit_code: kind for kind in (InputError, IncompleteError)}

#: Becomes the command that follows, which Linux ends when this process ends, however that happens: ranks that went on
#: alone would write into the run that the next command goes on with.  The launcher ends its ranks when it is ended.
_WITH_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def launch(config: TrainConfig, ranks: int | None = None) -> dict[str, Any]:
    """Train on new MPI processes of this machine; what rank 0 logs goes to this module's logger.

    SIGTERM to this process makes the ranks write a checkpoint and leave.

    Args:
        ranks: number of processes; ``config.ranks`` by default.

    Returns:
        The result that rank 0 wrote.

    Raises:
        LaunchError: there is no mpiexec, or the ranks failed; the message ends with what they said last.
        StoppedError: the run was stopped before its end.
        NotFoundError: there is no such dataset or shards; seen before a rank is started.
        ExistsError: another process writes the run; seen before a rank is started.
        InputError, IncompleteError: what the ranks found wrong with the configuration, the run or what they read.
    """
    config = replace(config, ranks=config.ranks if ranks is None else ranks)
    dataset = Catalog(config.catalog).dataset(config.dataset)
    open_source(dataset, config, 0, config.ranks, ReadCounter())
    with sole_writer(Run(dataset.run_path(config.run_name))):
        pass  # the ranks take it
    return _launch([], config.to_json(), config.ranks, config.threads)


def launch_prediction(
    dataset: Dataset, run: str, ranks: int | None = None, *, embeddings: bool = False
) -> dict[str, Any]:
    """Predict with the last checkpoint of a run on new MPI processes of this machine.

    Args:
        ranks: number of processes, for which there must be shards; that of the training by default.
        embeddings: write the last hidden layer's output too.

    Returns:
        The summary, with the ``path`` of the predictions.

    Raises:
        LaunchError, InputError, IncompleteError: as :func:`launch`.
        NotFoundError: there is no such run.
    """
    opened = Run.open(dataset, run)
    trained = TrainConfig.of_run(opened)
    same = ranks is None or ranks == trained.ranks
    config = PredictConfig(
        catalog=str(dataset.path.parent),
        dataset=dataset.name,
        run=run,
        ranks=trained.ranks if ranks is None else ranks,
        # Grid shards serve any number of ranks.
        shards=opened.inputs().get("shards") if same or trained.algorithm != "p2p" else None,
        method=trained.method,
        grid=trained.grid if same else None,
        embeddings=embeddings,
    )
    return _launch([PREDICT], asdict(config), config.ranks, config.threads)


def _launch(action: list[str], content: dict[str, Any], ranks: int, threads: int) -> dict[str, Any]:
    """Run the ranks with a configuration in a file and return the result that they leave in another."""
    with tempfile.TemporaryDirectory(prefix="gnnloom-") as folder:
        config, result = Path(folder, "config.json"), Path(folder, "result.json")
        write_json(config, content)
        program = [sys.executable, "-m", "mpi4py", "-m", "gnnloom.trainer", *action, str(config)]
        command = [find_mpiexec(), "-n", str(ranks), *program, "--result", str(result)]
        code, last_lines = _run(command, rank_environment(ranks, threads), stops=not action)
        if code == 0 and result.exists():
            return read_json(result)
    raise _failure(code, last_lines)


def _failure(code: int, last_lines: Sequence[str]) -> GnnloomError:
    """What the ranks' exit code and last lines tell."""
    if code == EXIT_STOPPED:
        return StoppedError(
            "stopped after a checkpoint; `gnnloom run` goes on from there, `gnnloom train` with --resume"
        )
    if code in _ERRORS and last_lines and last_lines[-1].startswith(_ERROR):
        return _ERRORS[code](last_lines[-1].removeprefix(_ERROR))
    return LaunchError("\n".join([f"the ranks ended with exit code {code}", *last_lines]))


def find_mpiexec() -> str:
    """Path of the MPI launcher: beside this Python, where the mpich wheel puts it, else on the PATH.

    Raises:
        LaunchError: there is none.
    """
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise LaunchError(f"no mpiexec beside {sys.executable} nor on the PATH; `pip install mpich` brings one")
    return found


def rank_environment(ranks: int, threads: int = 0) -> dict[str, str]:
    """This process's environment with what must be set before a rank starts.

    Args:
        threads: per rank; 0 shares the cores.
    """
    count = str(threads or max(1, len(os.sched_getaffinity(0)) // ranks))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    # Threads that wait by spinning cost an epoch tenfold as soon as anything else runs on the cores.
    # Freed activations go back to the system, so that a rank's memory is what it uses.
    defaults = {"OMP_WAIT_POLICY": "PASSIVE", "MALLOC_TRIM_THRESHOLD_": "65536", "PYTHONUNBUFFERED": "1"}
    return {**defaults, **os.environ, **dict.fromkeys(names, count)}


def _run(command: list[str], environment: dict[str, str], *, stops: bool) -> tuple[int, list[str]]:
    """Run the launcher; returns its exit code and the last lines of what it and the ranks said.

    Args:
        stops: the ranks stop in order when they are asked to; others are just ended with this process.
    """
    last_lines: deque[str] = deque(maxlen=_LAST_LINES)
    # In a session of its own, so that a signal to our group reaches the ranks through us only.
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WITH_PARENT, *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            with _stop_signal_passed_to(process) if stops else nullcontext():
                for line in _lines(process.stdout):
                    last_lines.append(line)
                    if not line.startswith(_ERROR):  # told by what is raised
                        logger.info("%s", line)
                code = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return code, list(last_lines)


def _lines(stream: IO[str] | None) -> Iterator[str]:
    for line in stream or ():
        yield line.rstrip("\n")


def _stop_signal_passed_to(process: subprocess.Popen[str]) -> AbstractContextManager[None]:
    """While inside, pass SIGTERM on to the ranks, as SIGUSR1: mpiexec passes only that one on."""

    def pass_on(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what signal calls
        process.send_signal(signal.SIGUSR1)

    return handling(signal.SIGTERM, pass_on)
