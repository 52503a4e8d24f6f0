"""`gnnloom doctor`: what is installed and how fast it is, with how to mend what is wrong."""

from __future__ import annotations

import click
from rich.console import Console
from rich.markup import escape

from gnnloom.workflows.cli.options import current_catalog, json_option
from gnnloom.workflows.cli.output import show
from gnnloom.workflows.doctor.installation import FAILED, OK, WARNING, Finding, examine

_COLOURS = {OK: "green", WARNING: "yellow", FAILED: "red"}


@click.command("doctor")
@json_option
def doctor_command(as_json: bool) -> None:
    """Check this machine and what is installed: Python, MPI, kernels, partitioners, memory, disk.

    Exits with 0 if nothing failed, 1 otherwise; a warning says what will be slow or is optional.

    \b
    Example:
      gnnloom doctor
      gnnloom --catalog /scratch/catalog doctor --json
    """
    findings = []
    console = Console()
    for finding in examine(current_catalog().root):
        findings.append(finding)
        if not as_json:
            _show(console, finding)
    if as_json:
        ok = not any(finding.state == FAILED for finding in findings)
        show({"ok": ok, "checks": [finding.to_json() for finding in findings]}, as_json=True, title="")
    if any(finding.state == FAILED for finding in findings):
        click.get_current_context().exit(1)


def _show(console: Console, finding: Finding) -> None:
    color = _COLOURS[finding.state]
    console.print(f"[{color}]{finding.state:8}[/{color}] {finding.check:24} {escape(finding.found)}", soft_wrap=True)
    if finding.mend:
        console.print(f"{'':33} [bold]mend:[/bold] {escape(finding.mend)}", soft_wrap=True)
