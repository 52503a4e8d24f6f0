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
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import IO, Any

from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.errors import GnnloomError, IncompleteError, InputError, LaunchError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.format.files import read_json, write_json
from gnnloom.storage.runs.run import Run, sole_writer
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.arguments import PREDICT
from gnnloom.trainer.job.exit_codes import EXIT_STOPPED
from gnnloom.trainer.job.signals import handling
from gnnloom.trainer.loggers.registry import check_loggers

logger = logging.getLogger(__name__)

#: Lines of the ranks' output that an error shows.
_LAST_LINES = 30


class StoppedError(LaunchError):
    """The run was asked to stop; it wrote a checkpoint and can be resumed."""

    exit_code = EXIT_STOPPED


#: Prefix of the one line that reports an error of all ranks; their exit code is that of the error's class.
_ERROR = "error: "
_ERRORS: Mapping[int, type[GnnloomError]] = {kind.exit_code: kind for kind in (InputError, IncompleteError)}

#: Replaces itself with the command that follows. Linux kills that command when this process ends, however that happens:
#: ranks without a parent would write to the run that the next command resumes. The launcher kills its ranks when it is
#: killed. Option 1 of prctl is PR_SET_PDEATHSIG, which survives exec.
_WITH_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def launch(config: TrainConfig, ranks: int | None = None) -> dict[str, Any]:
    """Train on new MPI processes of this machine. The log of rank 0 goes to this module's logger.

    On SIGTERM to this process the ranks write a checkpoint and exit.

    Args:
        ranks: number of processes; ``config.ranks`` by default.

    Returns:
        The result that rank 0 wrote.

    Raises:
        LaunchError: there is no mpiexec, or the ranks failed; the message ends with the last lines of their output.
        StoppedError: the run was stopped before its end.
        NotFoundError: the dataset or its shards do not exist; raised before a rank is started.
        ExistsError: another process writes the run; raised before a rank is started.
        InputError, IncompleteError: the ranks found an error in the configuration, the run or the shards.
    """
    config = replace(config, ranks=config.ranks if ranks is None else ranks)
    check_loggers(config.log)
    dataset = Catalog(config.catalog).dataset(config.dataset)
    config.chosen_algorithm.reads.open(dataset, config, 0, config.ranks, ReadCounter())
    with sole_writer(Run(dataset.run_path(config.run_name))):
        pass  # only a check: the ranks take the lock themselves
    return _launch([], config.to_json(), config.ranks, config.threads)


def launch_prediction(
    dataset: Dataset, run: str, ranks: int | None = None, *, embeddings: bool = False, checkpoint: str = "auto"
) -> dict[str, Any]:
    """Predict with a checkpoint of a run on new MPI processes of this machine.

    Args:
        ranks: number of processes, for which there must be shards; by default that of the training.
        embeddings: write the last hidden layer's output too.
        checkpoint: ``best``, ``last``, or ``auto`` for the best one if the run keeps one.

    Returns:
        The summary, with the ``path`` of the predictions.

    Raises:
        LaunchError, InputError, IncompleteError: as :func:`launch`.
        NotFoundError: there is no such run.
    """
    opened = Run.open(dataset, run)
    # The catalog may have moved since the training.
    catalog, name = str(dataset.path.parent), dataset.name
    config = PredictConfig.of_training(
        replace(TrainConfig.of_run(opened), catalog=catalog, dataset=name, run=run),
        shards=opened.inputs().get("shards"),
        ranks=ranks,
        embeddings=embeddings,
        checkpoint=checkpoint,
    )
    return _launch([PREDICT], config.to_json(), config.ranks, config.threads)


def _launch(action: list[str], content: dict[str, Any], ranks: int, threads: int) -> dict[str, Any]:
    """Run the ranks with a configuration in a file; returns the result that they leave in another file."""
    with tempfile.TemporaryDirectory(prefix="gnnloom-") as folder:
        config, result = Path(folder, "config.json"), Path(folder, "result.json")
        write_json(config, content)
        # mpi4py's runner aborts the whole job when a rank ends with an exception that it does not catch.
        program = [sys.executable, "-m", "mpi4py", "-m", "gnnloom.trainer", *action, str(config)]
        command = [find_mpiexec(), "-n", str(ranks), *program, "--result", str(result)]
        code, last_lines = _run(command, rank_environment(ranks, threads), stops=not action)
        if code == 0 and result.exists():
            return read_json(result)
    raise _failure(code, last_lines)


def _failure(code: int, last_lines: Sequence[str]) -> GnnloomError:
    """The error that the ranks' exit code and last lines stand for."""
    if code == EXIT_STOPPED:
        return StoppedError(
            "stopped after a checkpoint; `gnnloom run` continues from there, `gnnloom train` with --resume"
        )
    # Any program may exit with these codes; only together with the line do they stand for an error that was reported.
    if code in _ERRORS and last_lines and last_lines[-1].startswith(_ERROR):
        return _ERRORS[code](last_lines[-1].removeprefix(_ERROR))
    return LaunchError("\n".join([f"the ranks ended with exit code {code}", *last_lines]))


def find_mpiexec() -> str:
    """Path of the MPI launcher: next to this Python, where the mpich wheel puts it, or on the PATH.

    Raises:
        LaunchError: there is none.
    """
    bundled = Path(sys.executable).parent / "mpiexec"
    found = str(bundled) if bundled.exists() else shutil.which("mpiexec")
    if found is None:
        raise LaunchError(f"no mpiexec next to {sys.executable} or on the PATH; `pip install mpich` installs one")
    return found


def rank_environment(ranks: int, threads: int = 0) -> dict[str, str]:
    """This process's environment, with the variables that must be set before a rank starts.

    Args:
        threads: per rank; 0 divides the cores among the ranks.
    """
    count = str(threads or max(1, len(os.sched_getaffinity(0)) // ranks))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    # Waiting threads that spin make an epoch ten times slower as soon as anything else runs on the cores.
    # Freed activations go back to the system, so a rank's memory is what it uses.
    defaults = {"OMP_WAIT_POLICY": "PASSIVE", "MALLOC_TRIM_THRESHOLD_": "65536", "PYTHONUNBUFFERED": "1"}
    # The user's environment overrides the defaults but not the thread counts, which must fit the number of ranks.
    return {**defaults, **os.environ, **dict.fromkeys(names, count)}


def _run(command: list[str], environment: dict[str, str], *, stops: bool) -> tuple[int, list[str]]:
    """Run the launcher; returns its exit code and the last lines that it and the ranks printed.

    Args:
        stops: on SIGTERM, ask the ranks to stop after a checkpoint; otherwise they just end with this process.
    """
    last_lines: deque[str] = deque(maxlen=_LAST_LINES)
    # In a session of its own, so that a signal to this process group reaches the ranks only through this process. Both
    # output streams share one pipe: a single reader then drains them, and the ranks never block on a full pipe.
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
                    if not line.startswith(_ERROR):  # the raised error contains it
                        logger.info("%s", line)
                code = process.wait()
        except BaseException:
            # An interrupted launcher leaves no rank behind that writes to the run; killed ranks lose only what follows
            # the last checkpoint.
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return code, list(last_lines)


def _lines(stream: IO[str] | None) -> Iterator[str]:
    for line in stream or ():
        yield line.rstrip("\n")


def _stop_signal_passed_to(process: subprocess.Popen[str]) -> AbstractContextManager[None]:
    """Forward SIGTERM to the ranks while inside, as SIGUSR1: mpiexec forwards only that one."""

    def pass_on(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        process.send_signal(signal.SIGUSR1)

    return handling(signal.SIGTERM, pass_on)
