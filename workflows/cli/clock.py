"""The time since a command was called, which includes imports and the start of workers."""

from __future__ import annotations

import time

import click

_STARTED = "gnnloom.started"


def start_clock(context: click.Context) -> None:
    """Remember in the context of the whole command that it was called now."""
    context.meta[_STARTED] = time.perf_counter()


def command_seconds() -> float | None:
    """Return the seconds since the current command was called; None outside a command."""
    context = click.get_current_context(silent=True)
    started = None if context is None else context.meta.get(_STARTED)
    return None if started is None else round(time.perf_counter() - started, 3)
