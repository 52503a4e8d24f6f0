"""Watches the epochs of a training run for tensors and arrays that are allocated after the first epoch."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from gnnloom.trainer.kernels.unperformed import tensors_in
from gnnloom.trainer.place.workspace import SMALL, Workspace
from gnnloom.trainer.training.loop import EpochReport, Training
from support.array_memory import tracing_arrays

#: The first grows the workspace, the second shows that it is large enough, and each of the others is watched.
EPOCHS = 7


class Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lists torch operations whose results are large and neither in the workspace nor in memory that was there."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._workspace = workspace
        self.found: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # As in the rehearsal: torch's compiler would be imported only to leave this class alone, which takes seconds.
        return False

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        known = {tensor.untyped_storage().data_ptr() for tensor in tensors_in((*args, *(kwargs or {}).values()))}
        for tensor in tensors_in((result,)):
            storage = tensor.untyped_storage()
            is_new = storage.data_ptr() not in known and not self._workspace.holds(tensor)
            # The workspace makes its tensors from arrays, which torch does not see; the operations see them.
            if is_new and storage.nbytes() > SMALL:
                self.found.append(f"{function}: {tuple(tensor.shape)}, {tensor.dtype}")
        return result


def _page_faults() -> int:
    """Pages that this process has touched for the first time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@dataclass
class Watched:
    """What one rank's training of :data:`EPOCHS` epochs allocated.

    Attributes:
        page_faults: of the third or the fourth epoch, which are not watched otherwise, whichever had fewer: an
            allocator may once return memory to the system that it then needs again.
        found: operations of the fifth epoch whose results are large and not in the workspace.
        array_peak: bytes of arrays that the sixth or the seventh epoch had in addition at its worst moment, whichever
            had less: what a busy machine delays in one of them may be in memory for longer.
        sizes: bytes of the workspace after every epoch.
    """

    page_faults: int = sys.maxsize
    found: list[str] = field(default_factory=list)
    array_peak: int = 0
    sizes: list[int] = field(default_factory=list)


@contextmanager
def watched_epochs() -> Iterator[Watched]:
    """Watch the training that runs in the block."""
    epoch, watched = Training._train_epoch, Watched()

    def train_epoch(training: Training, number: int, stop: Callable[[], bool]) -> EpochReport:
        workspace = training.session.place.workspace
        # In turn, since watching the tensors allocates for the watching itself.
        if number == EPOCHS - 3:
            with Allocations(workspace) as allocations:
                report = epoch(training, number, stop)
            watched.found += allocations.found
        elif number >= EPOCHS - 2:
            with tracing_arrays() as arrays:
                report = epoch(training, number, stop)
                watched.array_peak = min(arrays.peak(), watched.array_peak or arrays.peak())
        else:
            before = _page_faults()
            report = epoch(training, number, stop)
            # The first two epochs touch the memory of all others.
            if number >= 2:
                watched.page_faults = min(_page_faults() - before, watched.page_faults)
        watched.sizes.append(workspace.nbytes)
        return report

    Training._train_epoch = train_epoch  # type: ignore[assignment, method-assign]
    try:
        yield watched
    finally:
        Training._train_epoch = epoch  # type: ignore[method-assign]
