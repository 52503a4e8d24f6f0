"""The help of every command, from click."""

from __future__ import annotations

import inspect
import os
import re
import textwrap
from collections.abc import Iterator

import click

from gnnloom.storage.option import Group
from gnnloom.workflows.cli.main import cli
from gnnloom.workflows.cli.terminal.help import declared


def commands() -> str:
    """Return a heading, the help and a table of options for every command."""
    # Defaults that depend on the environment would differ between builds.
    os.environ.pop("GNNLOOM_CATALOG", None)
    context = click.Context(cli, info_name="gnnloom")
    return "\n\n".join(["\n\n".join(_page(cli, context, 2)), *_below(cli, context, 2)])


def _below(group: click.Group, context: click.Context, level: int) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, parent=context, info_name=name)
        yield "\n\n".join(_page(command, inner, level))
        if isinstance(command, click.Group):
            yield from _below(command, inner, level + 1)


def _page(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    yield f"{'#' * level} {context.command_path} {{ #{context.command_path.replace(' ', '-')} }}"
    yield _text(command.help or "")
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```console\n{context.command_path} {usage}\n```"
    options = [
        parameter for parameter in command.params if isinstance(parameter, click.Option) and not parameter.hidden
    ]
    groups: dict[str, list[str]] = {}
    for option in sorted(options, key=_position):
        groups.setdefault(declared(option).heading, []).append(_row(option, context))
    for heading, rows in groups.items():
        if len(groups) > 1:
            yield f"**{heading}**"
        yield "\n".join(["| option | meaning |", "| --- | --- |", *rows])
    if command.epilog:
        yield _text(command.epilog)


def _position(option: click.Option) -> tuple[bool, int]:
    return not declared(option).is_common, list(Group).index(declared(option).group)


def _row(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    names, text = record or (option.opts[0], option.help or "")
    escaped = re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    # Long lists of choices may be broken anywhere.
    return f"| <code>{names.replace('|', '&#124;').replace('<', '&lt;').replace(',', ',<wbr>')}</code> | {escaped} |"


def _text(text: str) -> str:
    """Return a help text as Markdown; paragraphs that click does not wrap are code."""
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "\n\n".join(_block(block) for block in blocks)


def _block(block: str) -> str:
    if not block.startswith("\b"):
        # Options are code; a backtick before one means that it is already.
        return re.sub(r"(?<![`\w-])(--?[a-z][\w-]*)", r"`\1`", block.replace("<", "&lt;"))
    lines = block.removeprefix("\b").strip("\n")
    first, _, rest = lines.partition("\n")
    # A line such as "Example:" introduces the others.
    if not first.endswith(":"):
        return f"```text\n{textwrap.dedent(lines)}\n```"
    return f"{first}\n\n```text\n{textwrap.dedent(rest)}\n```"
