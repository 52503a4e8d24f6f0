"""The descriptor of a transport."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnnloom.trainer.comm.communicator import Communicator


@dataclass(frozen=True, kw_only=True)
class Transport:
    """A way in which the ranks of a job start, exchange messages and end.

    The module that holds it must import neither torch nor the transport's library, except inside ``join``.

    Attributes:
        name: as given with ``$GNNLOOM_TRANSPORT``.
        order: position among the choices; transports of equal order are sorted by name.
        help: one line of help text.
        join: makes this process a rank, and returns all ranks of its job. Collective; later calls return them again.
        launcher: the command that starts ``num_ranks`` ranks on this machine, to be followed by the command of a rank.
            Raises LaunchError if a program is missing.
        python: the command of a rank; ``-m MODULE`` and its arguments follow. It must end the whole job if an exception
            is not caught, and must not import from the current folder.
        environment: variables that a rank needs, unless the user has set them.
        variables: pairs of variables in which launchers state the number of a rank, and the number of all ranks.
        lend: lends a communicator of the transport's own kind, of all ranks and for the duration of a block, to a
            library. Collective. None if there is no such library.
        is_of_launcher: whether the launcher printed a line, rather than a rank.
        why_ended: explains why ranks ended without a report, from the launcher's exit code and the last lines; None if
            these do not tell.
    """

    name: str
    order: int
    help: str
    join: Callable[[], Communicator]
    launcher: Callable[[int], list[str]]
    python: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    variables: Sequence[tuple[str, str]] = ()
    lend: Callable[[], AbstractContextManager[Any]] | None = None
    is_of_launcher: Callable[[str], bool] = lambda line: False  # noqa: ARG005 - named as its callers know it
    why_ended: Callable[[int, Sequence[str]], str | None] = lambda code, lines: None  # noqa: ARG005
