"""Finds the commands and programs that documents show, as a reader would type them."""

from __future__ import annotations

import re
import textwrap

_PROGRAMS = r"(?:gnnloom|mpirun|make|bash|python|pip|jobs/submit\.sh)"
_INDENTED = re.compile(rf"^(?: {{4}}|#   )({_PROGRAMS}(?: .*)?)$", re.MULTILINE)
_INLINE = re.compile(rf"`({_PROGRAMS} [^`]+)`")
_PYTHON = re.compile(r"^ {4}(?:from|import) .*\n(?:(?: {4}.*)?\n)*", re.MULTILINE)


def shown_commands(text: str) -> list[str]:
    """Find commands in code blocks, in a recipe's comments and in the text: in order, without duplicates."""
    found = [(match.start(), match[1]) for pattern in (_INDENTED, _INLINE) for match in pattern.finditer(text)]
    plain = (re.split(r"\s{2,}[#(]", command)[0] for _, command in sorted(found))
    return list(dict.fromkeys(" ".join(command.split()) for command in plain))


def shown_python(text: str) -> list[str]:
    """Find Python code blocks that begin with an import."""
    return [textwrap.dedent(block) for block in _PYTHON.findall(text)]
