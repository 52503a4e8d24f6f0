"""Every function of the Python API has the options of its command as keywords, and no others."""

from __future__ import annotations

import inspect

import click
import pytest

import gnnloom
from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.sources.format import formats
from gnnloom.pipeline.sources.generators.generator import generators
from gnnloom.pipeline.sources.vertex_data.kind import vertex_kinds
from gnnloom.workflows.cli.main import cli
from support.option_types import FILE, option_types

#: What only a command can do: print, or stop before anything is stored.
_PRINTS = {
    "": {"as_json"},
    # A hidden option, for tests.
    "calibrate": {"scale"},
    "ingest": {"plan", "quiet"},
    "features": {"plan", "quiet"},
    "generate": {"plan"},
    # The figures of two partitions are in their `quality`.
    "partition": {"plan", "compare"},
    "plan": {"top"},
    "predict": {"quiet"},
    "propagate": {"plan"},
    "sample": {"plan"},
    "shard": {"plan"},
    # Resuming is the default; the flag is accepted for scripts that have it.
    "train": {"plan", "resume"},
    "run": {"plan", "dry_run", "listed", "show", "new", "emit", "out"},
}
#: Names that differ.
_CALLED = {
    # A flag switches off what a keyword switches on.
    "generate": {option.flag: option.name for each in generators().values() for option in each.options},
    "export": {"name": "dataset"},
    "features": {"name": "dataset"},
    "ingest": {"format_name": "format", "relation": "relations"},
    "look": {"format_name": "format", "files": "source"},
    "partition": {"name": "dataset"},
    "plan": {"name": "dataset"},
    "predict": {"name": "run"},
    "propagate": {"name": "dataset"},
    "sample": {"name": "dataset"},
    "shard": {"name": "dataset"},
    "simulate": {"name": "dataset", "table": "csv"},
    "train": {"name": "dataset"},
}
#: What functions take in ``**options``.
_OPTIONS = {
    "features": [option.name for kind in vertex_kinds().values() for option in kind.options],
    "generate": [option.name for generator in generators().values() for option in generator.options],
    "ingest": [
        *IngestOptions.__dataclass_fields__,
        *(option.name for known in formats().values() for option in known.options),
    ],
    "look": [option.name for known in formats().values() for option in known.options],
    "partition": list(PartitionOptions.__dataclass_fields__),
    "sample": list(SampleOptions.__dataclass_fields__),
}


def _of_command(name: str) -> set[str]:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    called = _CALLED.get(name, {})
    options = {each.name or "" for each in command.params} - _PRINTS[""] - _PRINTS.get(name, set())
    return {called.get(option, option) for option in options}


def _of_function(name: str) -> set[str]:
    parameters = inspect.signature(getattr(gnnloom, name)).parameters.values()
    own = {each.name for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD}
    # `--catalog` is an option of `gnnloom` itself.
    return (own | set(_OPTIONS.get(name, ()))) - {"catalog"}


@pytest.mark.parametrize("name", sorted(set(gnnloom.__all__) & set(cli.list_commands(click.Context(cli)))))
def test_functions_have_the_options_of_their_command(name: str) -> None:
    assert _of_function(name) == _of_command(name)


def test_editors_and_type_checkers_know_every_keyword() -> None:
    assert FILE.read_text() == option_types(), "run: python tests/support/option_types.py"
