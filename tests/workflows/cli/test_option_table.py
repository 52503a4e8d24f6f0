"""Every option of every command keeps its name, its values, its default and its meaning, as a stored table has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from gnnloom.workflows.cli.main import cli

#: One line per parameter; changed along with a line in the changelog only.
TABLE = Path(__file__).with_name("option_table.txt")


def commands(group: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """All commands below a group, each with its context."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, parent=context, info_name=name)
        yield command, inner
        if isinstance(command, click.Group):
            yield from commands(command, inner)


def described(parameter: click.Parameter, context: click.Context) -> str:
    """Names, values, default and meaning of a parameter, in one line."""
    kind = parameter.type
    values = "|".join(kind.choices) if isinstance(kind, click.Choice) else kind.name
    text, default = "", ""
    if isinstance(parameter, click.Option):
        text = " ".join((parameter.help or "").split())
        default = parameter.get_help_extra(context).get("default", "")
        values = "flag" if parameter.is_flag else values
    facts = [
        "required" if parameter.required else "",
        "several" if parameter.multiple or parameter.nargs != 1 else "",
        f"${parameter.envvar}" if parameter.envvar else "",
        f"default {default}" if default else "",
    ]
    return "; ".join([" ".join([*parameter.opts, *parameter.secondary_opts]), values, *filter(None, facts), text])


def option_table() -> str:
    """The parameters of every command; sorted, as their order has no meaning."""
    context = click.Context(cli, info_name="gnnloom")
    blocks = []
    for command, inner in [(cli, context), *commands(cli, context)]:
        lines = sorted(described(parameter, inner) for parameter in command.params)
        blocks.append("\n".join([inner.command_path, *(f"  {line}" for line in lines)]))
    return "\n".join(blocks) + "\n"


def test_every_option_keeps_its_name_default_and_meaning() -> None:
    assert option_table() == TABLE.read_text(encoding="utf-8")
