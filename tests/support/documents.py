"""Finds the commands and programs that documents show, as a reader would type them."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

_PROGRAMS = r"(?:gnnloom|mpirun|make|bash|python|pip|jobs/submit\.sh)"
_INDENTED = re.compile(rf"^(?: {{4}}|#   )({_PROGRAMS}(?: .*)?)$", re.MULTILINE)
_INLINE = re.compile(rf"`({_PROGRAMS} [^`]+)`")
_FENCED = re.compile(r"^```(bash|python|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Endings of files, where they are not the names of their languages.
_ENDINGS = {"python": "py"}
_PYTHON = re.compile(r"^ {4}(?:from|import) .*\n(?:(?: {4}.*)?\n)*", re.MULTILINE)


def shown_commands(text: str) -> list[str]:
    """Find commands in code blocks, in a recipe's comments and in the text: in order, without duplicates."""
    found = [(match.start(), match[1]) for pattern in (_INDENTED, _INLINE) for match in pattern.finditer(text)]
    plain = (re.split(r"\s{2,}[#(]", command)[0] for _, command in sorted(found))
    return list(dict.fromkeys(" ".join(command.split()) for command in plain))


def shown_python(text: str) -> list[str]:
    """Find Python code blocks that begin with an import."""
    return [textwrap.dedent(block) for block in _PYTHON.findall(text)]


def shown_tables(text: str) -> dict[str, str]:
    """Find blocks that show small tables side by side, below the names of their files: content by name."""
    tables = dict[str, str]()
    for block in re.findall(r"^```text\n([\w-]+\.csv(?: {2,}[\w-]+\.csv)*\n.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for name, *lines in zip(*(re.split(r" {2,}", line) for line in block.splitlines()), strict=True):
            tables[name] = "".join(f"{line}\n" for line in lines)
    return tables


#: Stands above a block that tests do not run, and says why; readers of the built manual do not see it.
NOT_RUN = re.compile(r"^<!-- Not run by the tests: (.*) -->$", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """A block of a page: a program, commands, or the content of a file.

    Attributes:
        language: ``bash``, ``python`` or ``toml``.
        file: name of the file whose content a ``toml`` or ``python`` block is, if the sentence before it ends with the
            name and a colon.
    """

    language: str
    text: str
    file: str | None = None

    @property
    def is_file(self) -> bool:
        """Whether the block is not run, but written."""
        return self.language == "toml" or self.file is not None

    @property
    def commands(self) -> list[str]:
        """The commands of a ``bash`` block, one per line."""
        return [line for line in self.text.splitlines() if line and not line.startswith("#")]


def fenced_steps(text: str) -> list[Step]:
    """Find the fenced blocks of a page of the manual in order, without those that say why tests cannot run them."""
    steps = []
    for match in _FENCED.finditer(text):
        language, block = match[1], match[2]
        before = text[: match.start()].rstrip().rsplit("\n", 1)[-1]
        if NOT_RUN.match(before):
            continue
        named = re.search(rf"`([\w.-]+\.{_ENDINGS.get(language, language)})`:\s*$", text[: match.start()])
        steps.append(Step(language, block, named[1] if named else None))
    return steps
