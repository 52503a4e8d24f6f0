"""All modes of training: those of this room, and those that installed packages announce."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import gnnloom.trainer.modes
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.storage.option import Group, Option
from gnnloom.trainer.modes.kind import ModeKind
from gnnloom.trainer.modes.options import samplers_with_option

#: Modes by name, in the order of choices.
MODES: Mapping[str, ModeKind] = load_descriptors(gnnloom.trainer.modes, "MODE", "gnnloom.modes", ModeKind)


def modes_with_option(name: str) -> list[str]:
    """Names of the modes that have an option."""
    return [kind.name for kind in MODES.values() if name in kind.options]


def shown_option(name: str) -> Option:
    """An option of gnnloom's modes; its help text ends with the modes that have it."""
    able = modes_with_option(name)
    declared = MODES[able[0]].options[name]
    samplers = samplers_with_option(name)
    needs = {"mode": able} | ({"sampler": samplers} if samplers else {})
    text = f"{declared.help} ({', '.join(able)})"
    return replace(declared, name=name, help=text, group=Group.SAMPLING, needs=needs)
