"""The `gnnloom` command, also as ``python -m gnnloom``."""

from __future__ import annotations

from gnnloom.workflows.cli.signals import leave_on_signals


def main() -> None:
    """Entry point of the command."""
    leave_on_signals()
    # Imported here, so that a signal is answered meanwhile.
    from gnnloom.workflows.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
