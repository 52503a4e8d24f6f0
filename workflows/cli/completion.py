"""`gnnloom completion`: shell completion, with the names of datasets, runs and recipes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

_PROGRAM = "gnnloom"
#: The variable in which click expects the shell's request.
_VARIABLE = "_GNNLOOM_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and names in a SHELL.

    \b
    Example:
      gnnloom completion bash > ~/.local/share/bash-completion/completions/gnnloom
      gnnloom completion zsh > ~/.zfunc/_gnnloom
      gnnloom completion fish > ~/.config/fish/completions/gnnloom.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this version of click has no completion for {shell}")
    click.echo(kind(context.find_root().command, {}, _PROGRAM, _VARIABLE).source())  # noqa: TID251 - a script


def complete_names(command: click.Command) -> click.Command:
    """Let the parameters of a command, and of its subcommands, complete the names of stored datasets, runs and recipes.

    Parameters are recognized by their names, which have the same meaning in all commands.
    """
    for parameter in command.params:
        find = _FINDERS.get(parameter.name or "")
        if find is not None and not isinstance(parameter.type, click.Choice | _Completed):
            parameter.type = _Completed(parameter.type, find)
    for subcommand in command.commands.values() if isinstance(command, click.Group) else ():
        complete_names(subcommand)
    return command


Finder = Callable[[click.Context, str], Iterable[str]]


class _Completed(click.ParamType[Any, object]):
    """Another type with names to complete; without names, the other type's own completion."""

    def __init__(self, kind: click.ParamType[Any, object], find: Finder) -> None:
        self.name = kind.name
        self._kind, self._find = kind, find

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._kind.convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        try:
            names = sorted(name for name in self._find(ctx, incomplete) if name.startswith(incomplete))
        # The shell would print the error into the line that is being typed.
        except (OSError, ValueError, LookupError):
            names = []
        return [CompletionItem(name) for name in names] or self._kind.shell_complete(ctx, param, incomplete)


def _catalog(context: click.Context) -> Any:
    from gnnloom.storage.catalog import Catalog

    # The group does not run while a shell completes, so its options are read from the command line.
    return Catalog(context.find_root().params.get("catalog") or "catalog")


def _datasets(context: click.Context, incomplete: str) -> Iterable[str]:
    """Find datasets, and runs once the name of a dataset is complete."""
    return _runs_of_all(context, incomplete) if "/" in incomplete else list(_catalog(context))


def _runs(context: click.Context, incomplete: str) -> Iterable[str]:
    """Find the runs of the dataset on the command line; without one, runs with their datasets."""
    # An option that lacks its value, as it is being completed, keeps click from assigning the arguments before it.
    name = context.params.get("name") or next(iter(context.args), None)
    if not isinstance(name, str):
        return _runs_of_all(context, incomplete)
    return list(_catalog(context)[name.partition("/")[0]].runs())


def _runs_of_all(context: click.Context, incomplete: str) -> Iterable[str]:
    catalog, (name, slash, _) = _catalog(context), incomplete.partition("/")
    names = [name] if slash else list(catalog)
    return [f"{each}/{run}" for each in names for run in catalog[each].runs()]


def _recipes(context: click.Context, incomplete: str) -> Iterable[str]:  # noqa: ARG001 - a finder
    from gnnloom.workflows.recipe.bundled import bundled_recipes

    return [*(file.stem for file in bundled_recipes()), *map(str, Path().glob("*.toml"))]


#: How to find the names that a parameter may have, by its name.
_FINDERS: Mapping[str, Finder] = {"name": _datasets, "run": _runs, "runs": _runs_of_all, "recipe": _recipes}
