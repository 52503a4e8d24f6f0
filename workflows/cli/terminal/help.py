"""Help of commands with many options: in groups, the most used first, on one page unless the user wants everything."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import click

from gnnloom.storage.option import Group, Option
from gnnloom.workflows.cli.terminal.screen import say

#: Lines of a page of help.
PAGE: Final = 60
#: Width of the column with the names of options; longer names have a line of their own.
_COLUMN: Final = 26
#: Width of the column with the headings of options that are only listed by name.
_HEADINGS: Final = max(map(len, Group))
_ARGUMENTS: Final = "gnnloom.arguments"


class DerivedOption(click.Option):
    """An option of a command that derives from an :class:`Option`."""

    def __init__(self, *arguments: Any, declared: Option, **details: Any) -> None:
        super().__init__(*arguments, **details)
        self.declared = declared


class GroupedCommand(click.Command):
    """A command whose help groups the options.

    ``--help`` leaves out the options that the rest of the command line rules out, such as options of other modes. It
    explains the most used options, then the options of chosen values, then the groups that fit on a page, and lists the
    other options by name. ``--help-all`` explains everything.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Help is printed before click assigns any value.
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        everything = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=self._print_everything,
            help=f"Explain all {len(self.options())} options.",
        )
        return [*super().get_params(ctx), everything]

    def options(self) -> list[click.Option]:
        """The options that help shows, by group."""
        shown = [each for each in self.params if isinstance(each, click.Option) and not each.hidden]
        groups = list(Group)
        return sorted(shown, key=lambda option: groups.index(declared(option).group))

    def get_help(self, ctx: click.Context) -> str:
        given = self._given(ctx)
        chosen = {each.name: each.default for each in self.params} | given
        page = _Page(self, ctx, [option for option in self.options() if _applies(option, chosen)])
        if page.num_lines(page.options, is_whole=True) <= PAGE:
            return page.text(page.options, is_whole=True)
        own = [option for option in page.options if declared(option).needs.keys() & set(given)]
        page = replace(page, is_brief=bool(own))
        explained: list[click.Option] = []
        for unit in _units(page.options, own):
            if page.num_lines([*explained, *unit]) <= PAGE:
                explained += unit
        return page.text(explained)

    def _print_everything(self, ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG002
        if value and not ctx.resilient_parsing:
            say(_Page(self, ctx, self.options()).text(self.options(), is_whole=True))
            ctx.exit()

    def _given(self, ctx: click.Context) -> dict[str | None, Any]:
        """Option values on the command line, as text."""
        given, _, _ = self.make_parser(ctx).parse_args(list(ctx.meta.get(_ARGUMENTS, ())))
        return {name: value for name, value in given.items() if isinstance(value, str)}


@dataclass(frozen=True)
class _Page:
    """A page of help.

    Attributes:
        options: options that are explained or named; other options of the command are only counted.
        is_brief: show only the first paragraph of the command's description.
    """

    command: GroupedCommand
    ctx: click.Context
    options: Sequence[click.Option]
    is_brief: bool = False

    def num_lines(self, explained: Collection[click.Option], *, is_whole: bool = False) -> int:
        """Number of lines of the page on a terminal, which breaks long lines."""
        columns = self.ctx.make_formatter().width
        return sum(max(1, -(-len(line) // columns)) for line in self.text(explained, is_whole=is_whole).split("\n"))

    def text(self, explained: Collection[click.Option], *, is_whole: bool = False) -> str:
        """The page with some options explained and the others named.

        Args:
            is_whole: the command's epilog is part of it.
        """
        formatter = self.ctx.make_formatter()
        self.command.format_usage(self.ctx, formatter)
        self._write_description(formatter)
        sections: dict[str, list[tuple[str, str]]] = {}
        for option in sorted(self.options, key=lambda option: not declared(option).is_common):
            if option in explained:
                name, text = option.get_help_record(self.ctx) or ("", "")
                heading = declared(option).heading
                sections.setdefault(heading, []).append((name.ljust(_COLUMN), text))
        for heading, rows in sections.items():
            _write(formatter, heading, rows)
        self._name_others(formatter, [option for option in self.options if option not in explained])
        names = ", ".join(self.ctx.help_option_names)
        _write(
            formatter,
            "Help",
            [(names.ljust(_COLUMN), "Show this message and exit."), ("--help-all".ljust(_COLUMN), self._say_all())],
        )
        if is_whole:
            self.command.format_epilog(self.ctx, formatter)
        return formatter.getvalue().rstrip("\n")

    def _write_description(self, formatter: click.HelpFormatter) -> None:
        if not self.is_brief:
            self.command.format_help_text(self.ctx, formatter)
            return
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(inspect.cleandoc(self.command.help or "").partition("\n\n")[0])

    def _name_others(self, formatter: click.HelpFormatter, others: Sequence[click.Option]) -> None:
        """List the names of options that are not explained."""
        named: dict[str, list[str]] = {}
        for option in others:
            named.setdefault(declared(option).group, []).append(option.opts[0])
        width = formatter.width - _HEADINGS - 4
        lines = {
            group: textwrap.wrap(", ".join(names), width, break_on_hyphens=False) for group, names in named.items()
        }
        # Click does not rewrap lines after \b.
        _write(
            formatter,
            "More options, which --help-all explains",
            [(group.ljust(_HEADINGS), "\n".join(["\b", *wrapped])) for group, wrapped in lines.items()],
        )

    def _say_all(self) -> str:
        """Sentence on what --help-all adds."""
        known = self.command.options()
        left_out = [option for option in known if option not in self.options]
        keys = ", ".join(sorted({key for option in left_out for key in declared(option).needs}))
        kinds = " or ".join(keys.rsplit(", ", 1))
        others = f", {len(left_out)} of them for another {kinds}" if left_out else ""
        return f"Explain all {len(known)} options{others}."


def _write(formatter: click.HelpFormatter, heading: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        with formatter.section(heading):
            # Padded, so that all groups have the same columns.
            formatter.write_dl(rows, col_max=_COLUMN)


def declared(option: click.Option) -> Option:
    """Declaration of an option; an option of another kind has neither group nor needs."""
    return option.declared if isinstance(option, DerivedOption) else Option(option.name or "")


def _applies(option: click.Option, chosen: dict[str | None, Any]) -> bool:
    """Whether no value rules out an option; a parameter without a value rules out nothing."""
    values = {name: chosen.get(name) for name in declared(option).needs}
    return all(not isinstance(value, str) or value in declared(option).needs[name] for name, value in values.items())


def _units(options: Sequence[click.Option], own: Sequence[click.Option]) -> Iterator[list[click.Option]]:
    """Units that help explains or names together, the most important first: single options, then whole groups.

    Args:
        own: options of the choices on the command line.
    """
    first = [*own, *(option for option in options if declared(option).is_common and option not in own)]
    yield from ([option] for option in first)
    others = [option for option in options if option not in first]
    for group in Group:
        members = [option for option in others if declared(option).group == group]
        if members:
            yield members
