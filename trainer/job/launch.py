"""Starts the ranks of a run on this machine and waits for them."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

from gnnloom.storage.catalog import Catalog
from gnnloom.storage.descriptors import check_confirmed, code_of_named, load_named
from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.disk.own_folder import own_folder
from gnnloom.storage.errors import GnnloomError, IncompleteError, InputError, LaunchError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.format.artifact import MANIFEST, WORK, Artifact
from gnnloom.storage.runs.run import Run, sole_writer
from gnnloom.storage.shared_memory import remove_abandoned
from gnnloom.trainer.comm.reported_error import ERROR_FOLDER, ReportedError
from gnnloom.trainer.comm.transports.registry import chosen_transport
from gnnloom.trainer.config.continuation import OpenedRun, Start, find_start, run_of, with_its_run
from gnnloom.trainer.config.fields import named_code
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.propagate_config import PropagateConfig
from gnnloom.trainer.config.propagation_plan import PropagationPlan, of_this_machine, plan_of
from gnnloom.trainer.config.propagation_plan import summary as summary_of_steps
from gnnloom.trainer.config.stored_predictions import look_up, summary
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.open_shards import ROW_SHARDS
from gnnloom.trainer.job.arguments import PREDICT, PROPAGATE
from gnnloom.trainer.job.leftovers import remove_segments_since
from gnnloom.trainer.job.rank_log import is_state, log_again
from gnnloom.trainer.job.stop import EXIT_CODE_FILE, EXIT_STOPPED, STOPPED_PROPAGATION, StoppedError, answering
from gnnloom.trainer.loggers.registry import check_loggers
from gnnloom.trainer.propagation.memory import rank_sizes
from gnnloom.trainer.propagation.source_rows import PROPAGABLE

logger = logging.getLogger(__name__)

#: Whether ranks that started at a given time (seconds since 1970) have results to keep.
HasBegun = Callable[[float], bool]

#: The unit of work after which training ranks stop.
_EPOCH = "this epoch, with a checkpoint"

#: Number of lines of the ranks' output that an error shows.
_LAST_LINES = 100


#: Prefix of the one line that reports an error of all ranks; their exit code is the code of the error's class.
_ERROR = "error: "
_ERRORS: Mapping[int, type[GnnloomError]] = {
    kind.exit_code: kind for kind in (LaunchError, InputError, IncompleteError)
}

#: Replaces itself with the command that follows. Linux kills that command when this process ends in any way: ranks
#: without a parent would write to the run that the next command resumes. The launcher kills its ranks when it is
#: killed. Option 1 of prctl is PR_SET_PDEATHSIG, which survives exec. A parent that has ended before sends no signal.
_WITH_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the launcher has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""


def prepare_launch(config: TrainConfig, *, restart: bool = False) -> tuple[TrainConfig, Start]:
    """Check everything about a training run that can be checked before ranks are started.

    Returns:
        The configuration with the name of its run, and where the training begins.

    Raises:
        NotFoundError: the dataset or its shards do not exist.
        ExistsError: the run is another training, or another process writes it.
        InputError: the run was trained on other data, or for more epochs; the shards do not fit the model, the task
            or the weights of the classes; or a user's file cannot be imported.
    """
    config = with_its_run(config)
    dataset = Catalog(config.data.catalog).dataset(config.data.dataset)
    run = Run(dataset.run_path(config.run_name))
    with sole_writer(run):
        pass  # only a check: the ranks take the lock themselves
    opened = OpenedRun.open(config, dataset, run, 0, config.algorithm.ranks, goes_on=not restart)
    shards, start = opened.shards.shards, find_start(run, config, opened.inputs, restart=restart)
    # A result is shown without importing the code that made it.
    if not start.is_finished:
        config.check_code()
        for name, code in named_code(TrainConfig, config.to_json()).items():
            # Importing a model is slow, and reports problems itself: only a module without a file is imported here.
            if code_of_named(code) is None:
                load_named(name, code)
        config.model.check_graph(shards)
        config.task.task_of(shards, shards, shards.artifact.path)
    return config, start


def launch(config: TrainConfig, *, restart: bool = False) -> dict[str, Any]:
    """Train on new ranks of this machine, continuing from the run's last checkpoint if there is one.

    The log of rank 0 goes to this module's logger. On SIGTERM or Ctrl-C to this process the ranks write a checkpoint
    and exit; a second Ctrl-C ends them at once. Before the first epoch they have nothing to keep, and end at once.

    Args:
        restart: start the run over.

    Returns:
        The result that rank 0 wrote. For a finished run, the stored result, without starting ranks.

    Raises:
        LaunchError: there is no launcher, or the ranks failed; the message ends with the last lines of their output.
        StoppedError: the run was stopped before its end.
        KeyboardInterrupt: Ctrl-C was pressed; the ranks have exited.
        NotFoundError, ExistsError, InputError: see :func:`prepare_launch`; raised before a rank is started.
        IncompleteError: the ranks found an error in the shards.
    """
    config, start = prepare_launch(config, restart=restart)
    if start.is_finished:
        return run_of(config).result()
    check_loggers(config.run.log)
    options, run, started = ["--restart"] if restart else [], run_of(config), time.time()

    def stored() -> dict[str, Any] | None:
        # A run that starts over may have an earlier result.
        is_new = run.begun_since(started) or not restart
        return run.result() if is_new and prepare_launch(config)[1].is_finished else None

    return _result_of(
        lambda: _launch(
            [], config.to_json(), config.algorithm.ranks, config.algorithm.threads, options, run.begun_since
        ),
        stored,
    )


def launch_prediction(config: PredictConfig) -> dict[str, Any]:
    """Predict with a checkpoint of a run on new ranks of this machine; returns the summary.

    If the run already has these predictions, no process is started, unless several ranks must find targets.

    Raises:
        LaunchError, InputError, IncompleteError: as :func:`launch`.
        NotFoundError: there is no such run.
    """
    dataset = Catalog(config.catalog).dataset(config.dataset)
    run = Run.open(dataset, config.run)
    found = look_up(run, config)
    if found.epoch and config.targets is None:
        return summary(run, found.epoch)
    # Checked here, although the ranks would notice, because starting them is slow. Stored predictions need no model.
    trained = config.trained(run)
    check_confirmed(*(() if found.epoch else (trained.model.name,)), trained.task.decoder)
    if found.epoch and config.ranks == 1:
        # Importing torch takes seconds, which only this path should spend.
        from gnnloom.trainer.comm.unconnected import UnconnectedRank  # noqa: PLC0415
        from gnnloom.trainer.training.best_targets import find_targets  # noqa: PLC0415

        alone, folder = UnconnectedRank(0, 1), Path(config.targets or "")
        find_targets(alone, dataset, run, folder, config.top, config.threads, config.decoder)
        return summary(run, found.epoch)
    return _result_of(
        lambda: _launch([PREDICT], config.to_json(), config.ranks, config.threads),
        lambda: _stored_summary(run, config),
    )


def _stored_summary(run: Run, config: PredictConfig) -> dict[str, Any] | None:
    """The summary of the requested predictions, if the run has them; None if it lacks them or the targets."""
    epoch = 0 if config.targets is not None else look_up(run, config).epoch
    return summary(run, epoch) if epoch else None


def prepare_propagation(config: PropagateConfig) -> tuple[Path, PropagationPlan]:
    """Check everything about a propagation that can be checked before ranks are started.

    Returns:
        The folder of its artifact, and the plan of the ranks.

    Raises:
        NotFoundError: the dataset or its shards do not exist.
        InputError: the shards lack the matrix, or are for another number of ranks.
        BudgetError: the memory is too small.
    """
    dataset = Catalog(config.catalog).dataset(config.dataset)
    shard = ROW_SHARDS.open(dataset, config.shard_request, 0, config.ranks, ReadCounter()).shard
    PROPAGABLE[config.matrix].open(shard)
    planned = plan_of(config, shard.shards, rank_sizes(shard.shards), *of_this_machine(config))
    artifact = shard.shards.artifact
    return dataset.path / "propagated" / config.key(artifact.key, artifact.inputs), planned


def launch_propagation(config: PropagateConfig) -> dict[str, Any]:
    """Propagate a matrix on new ranks of this machine; returns the summary.

    If the steps are stored already, no process is started. On SIGTERM or Ctrl-C to this process the ranks stop after
    the current columns, and at once if they have stored none.

    Raises:
        LaunchError, InputError, IncompleteError: as :func:`launch`.
        NotFoundError, InputError, BudgetError: see :func:`prepare_propagation`.
        StoppedError: the propagation was asked to stop.
    """
    path, _ = prepare_propagation(config)
    if (path / MANIFEST).exists():
        return summary_of_steps(Artifact(path))

    def begun(since: float) -> bool:
        return any(record.stat().st_mtime >= since for record in (path / WORK / "records").glob("[!.]*.json"))

    try:
        return _result_of(
            lambda: _launch([PROPAGATE], config.to_json(), config.ranks, config.threads, (), begun, "these columns"),
            lambda: summary_of_steps(Artifact(path)) if (path / MANIFEST).exists() else None,
        )
    except StoppedError as error:
        raise StoppedError(STOPPED_PROPAGATION) from error


def _result_of(job: Callable[[], dict[str, Any]], stored: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
    """Return the result of ranks; the stored result, with a warning, if the job fails after the ranks have stored it.

    Args:
        job: starts ranks, if there is no stored result yet.
        stored: finds the complete result; None if there is none.
    """
    try:
        return job()
    except LaunchError as error:
        found = None if isinstance(error, StoppedError) else stored()
        if found is None:
            raise
        logger.warning("%s. The result was already complete, and is stored", str(error).split("\n", 1)[0])
        return found


def _launch(
    action: list[str],
    content: dict[str, Any],
    ranks: int,
    threads: int,
    options: Sequence[str] = (),
    begun: HasBegun | None = None,
    unit: str = _EPOCH,
) -> dict[str, Any]:
    """Run the ranks with a configuration in a file; the command itself has named all code in it."""
    # The ranks treat the file as their command.
    check_confirmed(*content.values())
    with own_folder() as folder:
        config = folder / "config.json"
        write_json(config, content)
        return launch_program("gnnloom.trainer", [*action, str(config), *options], ranks, threads, begun, unit)


def launch_program(
    module: str,
    arguments: Sequence[str],
    ranks: int,
    threads: int,
    begun: HasBegun | None = None,
    unit: str = _EPOCH,
) -> dict[str, Any]:
    """Run a module on new ranks of this machine; returns the contents of the file after ``--result``.

    Args:
        begun: whether ranks that started at a given time (seconds since 1970) have results to keep. If so, SIGTERM and
            Ctrl-C ask them to stop after a checkpoint. Without it, the ranks end with this process.
        unit: unit of work after which ranks stop on request, as named in the message after Ctrl-C.

    Raises:
        LaunchError: the launcher is missing, or the ranks failed without a reason. An error that they reported is
            raised unchanged.
    """
    with own_folder() as folder:
        result = folder / "result.json"
        program = [*rank_python(), "-m", module, *arguments, "--result", str(result)]
        environment = rank_environment(ranks, threads)
        # This process reads the ranks' exit code; the file is for ranks that a batch job starts.
        environment.pop(EXIT_CODE_FILE, None)
        errors = folder / "errors"
        errors.mkdir()
        environment[ERROR_FOLDER] = str(errors)
        code, last_lines = _run([*chosen_transport().launcher(ranks), *program], environment, begun, unit)
        if code == 0 and result.exists():
            return read_json(result)
        raise _failure(code, last_lines, ReportedError.first(errors))


def _failure(code: int, last_lines: Sequence[str], error: ReportedError | None) -> GnnloomError:
    """The error that the ranks reported, or an error from their exit code and last lines."""
    if error is not None and error.code != EXIT_STOPPED:
        return _ERRORS.get(error.code, LaunchError)(error.message)
    if error is not None or code == EXIT_STOPPED:
        return StoppedError(
            "stopped; the same command, without --restart, continues from the last checkpoint, or from the start if"
            " there is none"
        )
    # Any program may exit with these codes; only together with the line do they mean a reported error. Ranks that are
    # ended because of the error may print more lines.
    reported = _reported(last_lines)
    if code in _ERRORS and reported:
        return _ERRORS[code](reported)
    transport = chosen_transport()
    of_ranks = "\n".join(line for line in last_lines if not transport.is_of_launcher(line)).strip("\n")
    why = transport.why_ended(code, last_lines)
    return LaunchError(why or f"the ranks ended with exit code {code}\n{of_ranks}".rstrip("\n"))


def _reported(lines: Sequence[str]) -> str:
    """The first error that a rank has reported, with the indented lines that follow it; empty if there is none."""
    begun = list(itertools.dropwhile(lambda line: not line.startswith(_ERROR), lines))
    table = itertools.takewhile(lambda line: line.startswith("  "), begun[1:])
    return "\n".join([line.removeprefix(_ERROR) for line in begun[:1]] + list(table))


def rank_python() -> list[str]:
    """Return the command that runs a rank's Python; ``-m MODULE`` follows it."""
    return [*chosen_transport().python]


def rank_environment(ranks: int, threads: int = 0) -> dict[str, str]:
    """This process's environment, with the variables that must be set before a rank starts.

    Args:
        threads: threads per rank; 0 divides the cores among the ranks.
    """
    count = str(threads or max(1, len(os.sched_getaffinity(0)) // ranks))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    # Waiting threads that spin make an epoch ten times slower as soon as anything else runs on the cores.
    # Freed activations go back to the system, so a rank's memory is what it uses.
    defaults = {"OMP_WAIT_POLICY": "PASSIVE", "MALLOC_TRIM_THRESHOLD_": "65536", "PYTHONUNBUFFERED": "1"}
    defaults |= chosen_transport().environment
    # The user's environment overrides the defaults but not the thread counts, which must fit the number of ranks.
    return {**defaults, **os.environ, **dict.fromkeys(names, count)}


def _run(
    command: list[str], environment: dict[str, str], begun: HasBegun | None, unit: str = _EPOCH
) -> tuple[int, list[str]]:
    """Run the launcher; returns its exit code, and the first error and the last lines of the output.

    Args:
        begun, unit: see :func:`launch_program`.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed, and the ranks have exited.
    """
    last_lines: deque[str] = deque(maxlen=_LAST_LINES)
    # The first error and the lines after it, which would be missing in the last lines if ranks print much more.
    from_error: list[str] = []
    is_of_launcher = chosen_transport().is_of_launcher
    # Files of earlier jobs that were killed together with their launcher.
    remove_abandoned()
    started = time.time()
    code = None
    # In its own session, so that a signal to this process group reaches the ranks only through this process. Both
    # output streams share one pipe: a single reader then drains them, and the ranks never block on a full pipe.
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WITH_PARENT, str(os.getpid()), *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        requests = _StopRequests(process, lambda: begun is None or begun(started), unit)
        try:
            with requests.heard() if begun is not None else nullcontext():
                for printed in process.stdout or ():
                    line = printed.rstrip("\n")
                    if not is_state(line):
                        last_lines.append(line)
                    if (from_error or line.startswith(_ERROR)) and len(from_error) < _LAST_LINES:
                        from_error.append(line)
                    # The raised error contains these lines.
                    if not line.startswith(_ERROR) and not is_of_launcher(line):
                        log_again(logger, line)
                code = process.wait()
        except BaseException:
            # An interrupted launcher leaves no rank behind that writes to the run; killed ranks lose only what follows
            # the last checkpoint. Once the launcher has been waited for, its number may belong to another process.
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            raise
        finally:
            # Ranks that did not end properly leave their shared memory behind.
            if code not in {0, EXIT_STOPPED}:
                remove_segments_since(started)
            remove_abandoned()
    # Even if training ended before it noticed the request: later stages must not begin.
    if requests.interrupted:
        raise KeyboardInterrupt
    # A batch system may also end the ranks before they have written a checkpoint: they continue from the previous one.
    code = EXIT_STOPPED if requests.received and code else code
    return code, [*(from_error if len(from_error) == _LAST_LINES else ()), *last_lines]


class _StopRequests:
    """Passes requests to stop on to the ranks, as SIGUSR1, the only signal that mpiexec forwards.

    Ranks without results are killed: they may read or compute for a long time without checking for requests.

    Attributes:
        received: the ranks were asked to stop, or killed because they had no results.
        interrupted: Ctrl-C was pressed.
    """

    def __init__(self, process: subprocess.Popen[str], begun: Callable[[], bool], unit: str) -> None:
        self._process, self._begun, self._unit = process, begun, unit
        self.interrupted = self.received = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Handle SIGTERM and SIGINT while inside."""
        with answering(signal.SIGTERM, self._stop), answering(signal.SIGINT, self._interrupt):
            yield

    def _stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        # Once the launcher has been waited for, its number may belong to another process.
        if self._process.returncode is not None:
            return
        self.received = True
        if self._begun():
            self._process.send_signal(signal.SIGUSR1)
        else:
            os.killpg(self._process.pid, signal.SIGKILL)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        # A user who presses Ctrl-C twice does not want to wait for the end of the epoch.
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        if self._begun():
            logger.warning("stopping after %s; press Ctrl-C again to stop at once", self._unit)
        self._stop(number, frame)
