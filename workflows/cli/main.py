"""The `gnnloom` command: its subcommands, global options and exit codes.

Exit codes: 0 success, 1 failure while running, 2 wrong usage, 3 invalid input, 4 incomplete artifact,
75 stopped after a checkpoint, 130 interrupted, 143 ended by SIGTERM.
"""

from __future__ import annotations

import importlib
import logging
import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import click
from click.shell_completion import CompletionItem

from gnnloom.storage.errors import in_one_line
from gnnloom.trainer.job.stop import handling, raised_again
from gnnloom.workflows.cli.completion import complete_names
from gnnloom.workflows.cli.ending import ended_in_time, leave
from gnnloom.workflows.cli.misuse import leave_if_another_answers, report_once, suggested
from gnnloom.workflows.cli.signals import LINES, leave_at_once
from gnnloom.workflows.cli.terminal.screen import PlainFormatter, say

#: Module of each subcommand, and its line in the main help. A module is imported only when its command is called,
#: because some imports take seconds; the main help imports no module.
_COMMANDS = {
    "look": ("data.look", "Show how files would be read, without storing anything."),
    "ingest": ("data.ingest", "Store the edges of files as a graph."),
    "generate": ("data.generate", "Generate a graph, without an input file."),
    "features": ("data.features", "Store features, labels and a split."),
    "partition": ("data.partition", "Partition the vertices so that ranks exchange few rows."),
    "shard": ("data.shard", "Write the shards that each rank reads."),
    "sample": ("data.sample", "Draw training batches ahead of time."),
    "links": ("data.links", "Hold out edges for link prediction."),
    "propagate": ("runs.propagate", "Store powers of the adjacency times the features."),
    "train": ("runs.train", "Train on the whole graph, or on samples."),
    "calibrate": ("runs.calibrate", "Measure how fast this machine multiplies and communicates."),
    "plan": ("runs.planner", "Predict the time and memory of a training run for every algorithm and process grid."),
    "simulate": ("runs.simulate", "Predict how training scales to thousands of ranks."),
    "predict": ("runs.predict", "Predict the class of every vertex."),
    "catalog": ("data.catalog", "List, show, verify, move and remove datasets."),
    "run": ("runs.run", "Run a recipe, from raw data to predictions."),
    "export": ("data.export", "Export predictions, embeddings and more for other programs."),
    "report": ("runs.report", "Write an HTML report on runs."),
    "demo": ("demo", "Run every stage on a generated graph."),
    "doctor": ("doctor", "Check this machine and the installation, and fill the cache of compiled kernels."),
    "check": ("check", "Train on one rank and on several, and compare the losses."),
    "completion": ("completion", "Print the script for completion in a shell."),
}


class _Ended(SystemExit):
    """The process received SIGTERM.

    A SystemExit passes through every ``except Exception``, and Python prints no traceback for it.
    """


#: Exceptions raised by signal handlers, with their signals.
_SIGNALS = {KeyboardInterrupt: signal.SIGINT, _Ended: signal.SIGTERM}


class LazyGroup(click.Group):
    """A group that imports a subcommand's module when the subcommand is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        # Importing torch or Dask takes seconds, so only commands that use them should import them.
        module = importlib.import_module(f"gnnloom.workflows.cli.{_COMMANDS[cmd_name][0]}")
        command = getattr(module, f"{cmd_name}_command")
        if not isinstance(command, click.Command):
            return None
        # Only a shell that asks for completions parses leniently.
        return complete_names(command) if ctx.resilient_parsing else command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Complete subcommands without importing their modules, and options."""
        found = {name: line for name, (_, line) in _COMMANDS.items() if name.startswith(incomplete)}
        names = [CompletionItem(name, help=line) for name, line in found.items()]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the subcommands without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the options before the subcommand; in an MPI job, one rank answers for all."""
        leave_if_another_answers(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            report_once(error, None)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; Ctrl-C exits with the code that shells use for it, whereas click would use 1."""
        # The same key as in output.py, which takes longer to import.
        ctx.meta["gnnloom.started"] = time.perf_counter()
        # Ctrl-C now raises KeyboardInterrupt, which closes open resources, rather than ending the process at once.
        ends_at_once = signal.getsignal(signal.SIGINT) is leave_at_once
        interruptible = handling(signal.SIGINT, signal.default_int_handler) if ends_at_once else nullcontext()
        try:
            # An exception closes everything that is open, including worker processes.
            with interruptible, handling(signal.SIGTERM, _terminate), raised_again(_SIGNALS):
                return super().invoke(ctx)
        except click.UsageError as error:
            report_once(suggested(error) or error, ctx.invoked_subcommand)
        except KeyboardInterrupt:
            say(LINES[signal.SIGINT], on_stderr=True)
            ctx.exit(130)
        except _Ended:
            say(LINES[signal.SIGTERM], on_stderr=True)
            raise


def _terminate(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a signal handler
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
@click.option("-v", "--verbose", is_flag=True, help="Log the progress of the stages.")
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

    Exit codes: 0 success, 1 failure while running, 2 wrong usage, 3 invalid input, 4 incomplete artifact,
    75 stopped after a checkpoint, 130 interrupted, 143 ended by SIGTERM.
    """
    # Imported here because the help needs no catalog.
    from gnnloom.storage import Catalog

    _log_to_stderr(logging.INFO if verbose else logging.WARNING)
    context.obj = Catalog(catalog)


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to the current standard error: progress bars replace it, so that lines appear above the bars."""

    def __init__(self) -> None:
        # Not the constructor of StreamHandler, which would assign to the property below.
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def _log_to_stderr(level: int) -> None:
    """Log only gnnloom's own messages: Dask's messages while it closes do not help a user."""
    handler = _StderrHandler()
    handler.setFormatter(PlainFormatter("%(asctime)s  %(message)s", datefmt="%H:%M:%S"))
    logger = logging.getLogger("gnnloom")
    # Replaced rather than added, because one process may run several commands.
    logger.handlers = [handler]
    logger.setLevel(level)
    # The root logger would print every line a second time.
    logger.propagate = False


def _is_caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error is not None


def main() -> None:
    """Entry point: errors that the user can fix become one line and an exit code."""
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _terminate}
    signals = {number: (handler, LINES[number]) for number, handler in handlers.items()}
    try:
        with ended_in_time(signals):
            cli()
    except SystemExit as ending:
        # Threads may still compute, and code that started worker processes may wait for them or close them.
        if ending.code in {128 + number for number in signals}:
            leave(ending.code)
        raise
    except Exception as error:
        # Python turns an exception in some of its callbacks into another error.
        if _is_caused_by(error, KeyboardInterrupt):
            say(LINES[signal.SIGINT], on_stderr=True)
            leave(130)
        reported = in_one_line(error)
        if reported is None:
            raise
        message, code = reported
        say(f"error: {message}", on_stderr=True)
        sys.exit(code)


if __name__ == "__main__":
    main()
