"""Runs the `gnnloom` command as ``python -m gnnloom``."""

from __future__ import annotations

from gnnloom.workflows.cli.main import main

if __name__ == "__main__":
    main()
