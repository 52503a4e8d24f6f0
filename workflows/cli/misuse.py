"""Wrong usage and help: suggests names, and lets one rank of an MPI job print for all."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NoReturn

import click

from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.wording import printable, shell_command
from gnnloom.trainer.comm.transports.registry import LaunchedRank

#: Commands that use the ranks of the job in which they are started. None stands for a command that does not exist.
_COLLECTIVE = frozenset({"run", "train", "predict", "calibrate", None})
#: Options that print something and do nothing else.
_ANSWERED = frozenset({"-h", "--help", "--help-all", "--version"})


class _MisuseError(GnnloomError):
    """The command was used wrongly."""

    exit_code = click.UsageError.exit_code


def leave_if_another_answers(arguments: Sequence[str]) -> None:
    """Exit on all ranks of an MPI job except the first if the command line asks for help or the version."""
    if LaunchedRank.from_environment().rank > 0 and not _ANSWERED.isdisjoint(arguments):
        sys.exit(0)


def report_once(error: click.UsageError, command: str | None) -> NoReturn:
    """Raise the error, or leave together with the other ranks of this MPI job after one rank has printed it.

    Collective inside an MPI job, for collective commands. Other commands run once per rank, each independently.

    Args:
        command: name of the command that was called; None if there is no such command.
    """
    # Values on the command line may be file names that other people chose.
    error.__dict__["message"] = printable(error.message, keep="\n")
    launched = LaunchedRank.from_environment()
    if launched.size == 1 or command not in _COLLECTIVE:
        raise error
    # These imports start MPI, which only the ranks of a job may do.
    from gnnloom.trainer.comm.agreement import CollectiveError, together
    from gnnloom.trainer.comm.transports.registry import world
    from gnnloom.trainer.job.stop import leave

    def refuse() -> NoReturn:
        raise _MisuseError(error.format_message())

    comm = world()
    try:
        # Even a rank with correct usage reaches such an exchange next, and leaves with the others.
        together(comm, refuse)
    except CollectiveError as agreed:
        # The launcher may belong to another MPI, which leaves every process alone.
        if agreed.reports and (comm.size > 1 or launched.rank == 0):
            error.show()
        leave(comm, agreed.code)


#: Click's wording of a wrong value of a choice, and of a command that does not exist.
_QUOTED = re.compile(r"^(?:No such command )?(['\"])(?P<given>.*?)\1(?: is not one of |\.)")


#: Minimum similarity at which an unknown option counts as mistyped; click itself then suggests a name.
_MISTYPED = 0.8


def suggested(error: click.UsageError) -> click.UsageError | None:
    """The same error with a suggestion; None if there is nothing to suggest.

    For a mistyped name, it suggests the nearest names; for an option of other commands, these commands.
    """
    if isinstance(error, click.NoSuchOption):
        if get_close_matches(error.option_name, error.possibilities or (), cutoff=_MISTYPED):
            return None
        others = _commands_with(error.option_name, error.ctx)
        names = " and ".join(filter(None, [", ".join(others[:-1]), *others[-1:]]))
        text = f"No such option {error.option_name!r}. It is an option of {names}."
        return click.UsageError(text, error.ctx) if others else None
    found, text = _QUOTED.match(error.message), error.format_message()
    if found is None or "Did you mean" in text:
        return None
    near = get_close_matches(found["given"], _choices(error), n=2)
    names = " or ".join(map(repr, near))
    return click.UsageError(f"{text.rstrip('.')}. Did you mean {names}?", error.ctx) if near else None


def _commands_with(option: str, ctx: click.Context | None) -> list[str]:
    """Full names of the commands that have an option."""
    called = ctx.parent if ctx is not None else None
    if called is None or not isinstance(group := called.command, click.Group):
        return []
    found = []
    for name in group.list_commands(called):
        command = group.get_command(called, name)
        if command is not None and any(option in (*each.opts, *each.secondary_opts) for each in command.params):
            found.append(f"`{shell_command(*called.command_path.split(), name)}`")
    return found


def _choices(error: click.UsageError) -> list[str]:
    """Everything that the user may have meant."""
    if isinstance(error, click.BadParameter):
        kind = error.param.type if error.param is not None else None
        return [str(choice) for choice in kind.choices] if isinstance(kind, click.Choice) else []
    command = error.ctx.command if error.ctx is not None else None
    return command.list_commands(error.ctx) if isinstance(command, click.Group) and error.ctx is not None else []
