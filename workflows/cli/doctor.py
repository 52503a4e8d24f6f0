"""`gnnloom doctor`: checks this machine and the installation, and explains how to fix problems."""

from __future__ import annotations

import click

from gnnloom.trainer.job.leftovers import find_leftovers, remove_leftovers
from gnnloom.workflows.cli.terminal.options import current_catalog, json_option
from gnnloom.workflows.cli.terminal.output import show, show_json, wants_json
from gnnloom.workflows.cli.terminal.screen import console, text
from gnnloom.workflows.doctor.finding import FAILED, OK, WARNING
from gnnloom.workflows.doctor.installation import examine
from gnnloom.workflows.doctor.warm import warm_kernels

_COLORS = {OK: "green", WARNING: "yellow", FAILED: "red"}


@click.command("doctor")
@click.option(
    "--warm",
    is_flag=True,
    help="Compile all kernels into the cache instead of checking, so that later commands start faster.",
)
@click.option("--wide", is_flag=True, help="With --warm: also compile kernels for graphs of more than 2^31 vertices.")
@click.option("--clean", is_flag=True, help="Remove shared memory and temporary folders that killed processes left.")
@json_option
def doctor_command(warm: bool, wide: bool, clean: bool) -> None:
    """Check this machine and the installation: Python, MPI, kernels, partitioners, memory and disk.

    With --clean, the command instead removes files that your killed processes left and that no process uses: shared
    memory of MPI ranks, semaphores of worker processes in /dev/shm, and temporary folders. To clean a catalog, use
    `gnnloom catalog gc`.

    Exits with code 0 if no check failed, and with 1 otherwise. A warning is about something that is slow or optional.

    \b
    Example:
      gnnloom doctor
      gnnloom doctor --warm
      gnnloom doctor --clean
      gnnloom --catalog /scratch/catalog doctor --json
    """
    if wide and not warm:
        raise click.UsageError("--wide: only with --warm")
    if clean:
        left = find_leftovers()
        remove_leftovers(left)
        removed = {"removed": [str(item.path) for item in left], "bytes": sum(item.bytes for item in left)}
        show(removed, title="left by killed processes")
        return
    findings = []
    screen = console()
    for finding in warm_kernels(wide=wide) if warm else examine(current_catalog().root):
        findings.append(finding)
        if not wants_json():
            found = f" {finding.check:24} {finding.found}"
            screen.print(text((_COLORS[finding.state], f"{finding.state:8}"), found), soft_wrap=True)
            if finding.fix:
                screen.print(text(f"{'':33} ", ("bold", "fix:"), f" {finding.fix}"), soft_wrap=True)
    ok = not any(finding.state == FAILED for finding in findings)
    show_json({"ok": ok, "checks": [finding.to_json() for finding in findings]})
    if not ok:
        click.get_current_context().exit(1)
