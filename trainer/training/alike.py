"""Checks that ranks agree on their command, software and options, and on the data and checkpoints that they find.

No field of a configuration may differ between ranks. A field that only one rank reads today may be read by all in
another version, and a batch system starts all ranks of a job with the same command anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from gnnloom.storage.descriptors import code_of_named
from gnnloom.trainer.comm.agreement import COMMAND, Alike


@cache
def own_version() -> str:
    """The version of gnnloom, kept because looking it up parses the metadata of the package."""
    return version("gnnloom")


def alike_command(command: str, options: Mapping[str, Any]) -> Alike:
    """The command, the software and the options of a rank, compared before ranks do anything else.

    Args:
        options: name to value. Names of fields become options, and other strings stay as they are.
    """
    facts = {
        COMMAND: command,
        "gnnloom": own_version(),
        "torch": torch.__version__,
        # Processors may differ: every instruction set gives the same results.
    }
    for name, value in options.items():
        shown = f"--{name.replace('_', '-')}" if name.isidentifier() else name
        facts[shown] = _text(name, value)
        # Files of the same name in the current folders of two machines may differ.
        if isinstance(value, str) and (code := code_of_named(value)):
            facts[f"code of {shown}"] = code
    return Alike(facts, "start all ranks with the same command, options and software")


def alike_data(inputs: Mapping[str, str], run: Mapping[str, Any]) -> Alike:
    """The data and the run that a rank finds in the catalog, compared before ranks read them.

    Args:
        inputs: kind to key of the artifacts that the rank is about to read.
        run: facts about the run, by name.
    """
    facts = {f"key of the {kind}": key for kind, key in inputs.items()}
    facts |= {name: _text(name, value) for name, value in run.items()}
    return Alike(facts, "the catalog must be on a file system that all machines share")


def _text(name: str, value: Any) -> str:
    if name == "catalog":
        # The same relative path in another working directory is another catalog.
        return str(Path(value).absolute())
    if value is None:
        return "not given"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
