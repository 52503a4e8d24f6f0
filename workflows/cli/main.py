"""The `gnnloom` command: global options, exit codes, and which subcommand is where.

Exit codes: 0 done, 1 a failure while running, 2 wrong usage, 3 invalid input, 4 an incomplete artifact,
75 stopped after a checkpoint, 130 interrupted, 143 ended by SIGTERM.
"""

from __future__ import annotations

import errno
import importlib
import logging
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import click

from gnnloom.storage import Catalog, GnnloomError
from gnnloom.trainer.job.signals import handling, raised_again

#: Subcommands by name and the module that holds them, imported only when asked for: some need seconds.
_COMMANDS = {
    "ingest": "ingest",
    "generate": "generate",
    "features": "ingest",
    "partition": "partition",
    "shard": "partition",
    "train": "train",
    "predict": "train",
    "catalog": "catalog",
    "run": "run",
    "export": "export",
    "report": "report",
    "demo": "demo",
    "doctor": "doctor",
    "check": "check",
}


class _Ended(SystemExit):
    """SIGTERM came."""


_SIGNALS = {KeyboardInterrupt: signal.SIGINT, _Ended: signal.SIGTERM}


class LazyGroup(click.Group):
    """A group that imports a subcommand's module when the subcommand is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"gnnloom.workflows.cli.{_COMMANDS[cmd_name]}")
        command = getattr(module, f"{cmd_name}_command")
        return command if isinstance(command, click.Command) else None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; Ctrl-C ends with the shells' code for it, where click would say 1."""
        try:
            # Closes what is open, workers among it, as Ctrl-C does.
            with handling(signal.SIGTERM, _terminate), raised_again(_SIGNALS):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted; what is finished is kept, run again to go on", err=True)
            ctx.exit(130)
        except _Ended:
            click.echo("ended by SIGTERM; what is finished is kept, run again to go on", err=True)
            raise


def _terminate(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what signal calls
    raise _Ended(128 + number)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--catalog",
    envvar="GNNLOOM_CATALOG",
    default="catalog",
    show_default=True,
    show_envvar=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the datasets.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log what the stages do.")
@click.version_option(package_name="gnnloom")
@click.pass_context
def cli(context: click.Context, catalog: Path, verbose: bool) -> None:
    """Train graph neural networks on graphs too large for one machine's memory.

    \b
    From raw files to a trained model:
      gnnloom ingest web edges.txt.gz --undirected
      gnnloom features web --feature x.npy --label y.npy --split split.npy
      gnnloom partition web --parts 4
      gnnloom shard web --parts 4
      gnnloom train web --ranks 4

    Exit codes: 0 done, 1 failed while running, 2 wrong usage, 3 invalid input, 4 incomplete artifact,
    75 stopped after a checkpoint, 130 interrupted, 143 ended by SIGTERM.
    """
    _log_to_stderr(logging.INFO if verbose else logging.WARNING)
    context.obj = Catalog(catalog)


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to what is standard error at the moment: bars take its place, so that lines stand above them."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def _log_to_stderr(level: int) -> None:
    """Only gnnloom's own lines: what Dask says when it closes tells a user nothing."""
    handler = _StderrHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s  %(message)s", datefmt="%H:%M:%S"))
    logger = logging.getLogger("gnnloom")
    logger.handlers = [handler]
    logger.setLevel(level)
    logger.propagate = False


def main() -> None:
    """Entry point: errors that are the user's to mend become one line and an exit code."""
    try:
        cli()
    except GnnloomError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        _leave_by(error)


#: What a disk says that is full or fails, and where one may not write; what is done by then is kept.
_OF_DISKS = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EIO}
#: What the system says to a name that cannot be that of what was asked for.
_OF_NAMES = {errno.ENOTDIR, errno.ENOENT, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG}


def _leave_by(error: OSError) -> None:
    """End with one line and an exit code where the system's error is the user's to mend; else raise it."""
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in _OF_DISKS:
        click.echo(f"error: {where}{error.strerror}; what is finished is kept, run again to go on", err=True)
        sys.exit(1)
    if error.errno in _OF_NAMES and error.filename:
        click.echo(f"error: {where}{error.strerror}; choose another place", err=True)
        sys.exit(3)
    raise error


if __name__ == "__main__":
    main()
