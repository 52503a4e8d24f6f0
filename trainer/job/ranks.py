"""The ranks for a command or a function of the API: new ones, or the ranks of the current job.

``mpirun -n 4 gnnloom train NAME`` trains on the ranks of the job; without a launcher, ``gnnloom train NAME --ranks 4``
starts new ones. Both have the operations of :class:`Ranks`, so callers can treat them alike.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gnnloom.storage.catalog import Catalog
from gnnloom.trainer.comm.transports.registry import LaunchedRank
from gnnloom.trainer.config.algorithm_config import AUTO
from gnnloom.trainer.config.continuation import configure
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.propagate_config import PropagateConfig
from gnnloom.trainer.config.train_config import MEMORY, TrainConfig
from gnnloom.trainer.job.launch import launch, launch_prediction, launch_propagation
from gnnloom.trainer.job.stop import StopRequest, preparing_signals

if TYPE_CHECKING:
    from gnnloom.trainer.comm.communicator import Communicator

Result = TypeVar("Result")


class Ranks(Protocol):
    """Ranks that train and predict. On the ranks of a job, the methods are collective and raise CollectiveError."""

    @property
    def is_first(self) -> bool:
        """Whether this process prints for all."""
        ...

    @property
    def comm(self) -> Communicator | None:
        """The existing ranks; None if any number can be started."""
        ...

    def number(self, wanted: int | None) -> int | None:
        """The number of ranks: the job's number in a job, otherwise the requested number.

        Raises:
            InputError: the job has another number of ranks.
        """
        ...

    def agree(
        self, action: Callable[[], Result], options: Callable[[Result], Mapping[str, Any]] | None = None
    ) -> Result:
        """Call ``action``; if it fails on one rank, it fails on all.

        Args:
            action: must not communicate.
            options: given the result, values that must be the same on all ranks, by name.
        """
        ...

    def on_first(self, action: Callable[[], Any]) -> Any:
        """Call ``action`` on the first rank alone; every rank gets its result, a value of JSON."""
        ...

    def first_before_others(self, action: Callable[[], Result]) -> Result:
        """Call ``action`` on the first rank, and then on every other rank, which finds what the first one stored."""
        ...

    def working_for_all(self) -> AbstractContextManager[None]:
        """Work on this rank while the others wait: it logs for all, and StoppedError is raised on a request to stop."""
        ...

    def train(self, config: TrainConfig, *, restart: bool = False) -> dict[str, Any]:
        """Train, continuing from the run's last checkpoint if there is one; returns the run's result.

        Raises:
            StoppedError: the training was asked to stop, and wrote a checkpoint.
        """
        ...

    def predict(self, config: PredictConfig) -> dict[str, Any]:
        """Predict with a run, unless it has these predictions; returns the summary."""
        ...

    def propagate(self, config: PropagateConfig) -> dict[str, Any]:
        """Propagate a matrix, unless the steps are stored already; returns the summary.

        Raises:
            StoppedError: the propagation was asked to stop; finished columns are kept.
        """
        ...


class NewRanks:
    """Ranks that this process starts for each training run and prediction; everything else happens in this process."""

    is_first, comm = True, None

    def number(self, wanted: int | None) -> int | None:
        return wanted

    def agree(
        self,
        action: Callable[[], Result],
        options: Callable[[Result], Mapping[str, Any]] | None = None,  # noqa: ARG002
    ) -> Result:
        return action()

    def on_first(self, action: Callable[[], Any]) -> Any:
        return action()

    def first_before_others(self, action: Callable[[], Result]) -> Result:
        return action()

    def working_for_all(self) -> AbstractContextManager[None]:
        return nullcontext()

    def train(self, config: TrainConfig, *, restart: bool = False) -> dict[str, Any]:
        return launch(config, restart=restart)

    def predict(self, config: PredictConfig) -> dict[str, Any]:
        return launch_prediction(config)

    def propagate(self, config: PropagateConfig) -> dict[str, Any]:
        return launch_propagation(config)


@contextmanager
def ranks_of_job(command: str, *, exits: bool = False, trains: bool = False, is_rank: bool = False) -> Iterator[Ranks]:
    """The ranks of the current job, for the duration of the block; without a job, new ones.

    Args:
        command: the activity of this process; all ranks of a job must have the same.
        exits: this process ends with the block. If the block fails on all ranks, one of them prints the error, and all
            exit with its code.
        trains: requests to stop are remembered from now on, and end training after a checkpoint.
        is_rank: this process is a rank, whether or not a launcher is recognized.

    Raises:
        CollectiveError: the block failed in the same way on every rank of the job. Any other error ends the job.
        StoppedError: the job was asked to stop; raised on every rank.
    """
    launched = LaunchedRank.from_environment()
    if launched.size == 1 and not is_rank:
        yield NewRanks()
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    if exits:
        # The launcher ends all ranks at once: closing connections would mean waiting for ranks that are gone.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Before the import, which takes seconds, so that a request in the meantime is remembered.
    stop = StopRequest(*(preparing_signals() if trains else ()))
    # This import starts MPI, which only the ranks of a job may do.
    from gnnloom.trainer.job.in_place import joined  # noqa: PLC0415

    try:
        with joined(command, launched, stop, exits=exits) as ranks:
            yield ranks
    finally:
        # A command ends with the block, and a signal must not turn a stored result into a failure.
        if trains and not exits:
            for number, handler in before.items():
                signal.signal(number, handler)


def settled(ranks: Ranks, given: Mapping[str, Any], *, restart: bool) -> TrainConfig:
    """The configuration of a training run on these ranks. Collective on the ranks of a job.

    Args:
        given: given fields, including ``catalog`` and ``dataset``; other fields come from the run, if there is one.

    Raises:
        NotFoundError: there is no such dataset.
        InputError, ExistsError: as :func:`~gnnloom.trainer.config.continuation.configure` and :meth:`Ranks.number`.
    """

    def of_job() -> dict[str, Any]:
        number = ranks.number(given.get("ranks"))
        # A missing dataset is reported before anything else.
        Catalog(given["catalog"]).dataset(given["dataset"])
        return dict(given) if number is None else {**given, "ranks": number}

    fields = ranks.agree(of_job, lambda _: {**given, "restart": restart})
    if is_open(fields):
        # One rank reads the planner's input, and logs the reason for the choice.
        choose = partial(with_choices, fields, restart=restart)
        fields = ranks.on_first(choose if ranks.comm else partial(_in_child, choose))
    # Compared again: fields that are not given come from the run that each rank finds.
    return ranks.agree(lambda: configure(fields, restart=restart), TrainConfig.to_json)


def _in_child(action: Callable[[], Result]) -> Result:
    """Call a function in a separate process: torch, which planning imports, would otherwise stay in memory."""
    if "torch" in sys.modules:
        return action()
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        return pool.submit(action).result()


def is_open(given: Mapping[str, Any]) -> bool:
    """Whether the planner chooses fields of a training run: its algorithm, or fields that fit a memory limit."""
    return given.get("algorithm") == AUTO or bool(given.get(MEMORY))


def with_choices(given: Mapping[str, Any], ranks: int | None = None, *, restart: bool = False) -> dict[str, Any]:
    """The fields of a training run with the planner's choices; see ``settle_algorithm`` and ``settle_memory``.

    Args:
        ranks: number of ranks, if it is not among the fields.
        restart: the run starts over.
    """
    fields = {name: value for name, value in given.items() if name != MEMORY}
    if fields.get("algorithm") == AUTO:
        # Importing torch takes seconds, which only these choices should spend.
        from gnnloom.trainer.planner.stored import settle_algorithm  # noqa: PLC0415

        fields = settle_algorithm(fields, ranks)
    if memory := given.get(MEMORY):
        from gnnloom.trainer.planner.fitting import settle_memory  # noqa: PLC0415

        fields = settle_memory(fields, memory, restart=restart)
    return fields
