"""Wording of messages: counts with their nouns, the name that was meant, and text from elsewhere made printable."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Final

#: Plurals of nouns that take more than an s.
PLURALS: Final[Mapping[str, str]] = {
    "batch": "batches",
    "class": "classes",
    "entry": "entries",
    "pass": "passes",
    "process": "processes",
    "vertex": "vertices",
}

#: Unicode categories of characters that a terminal obeys or that hide or reorder text: control and format characters,
#: single surrogates (bytes of a file name that are not UTF-8), line and paragraph separators.
_OBEYED: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
#: Format characters that belong to words of Persian and of Indian languages, and to emoji.
_JOINERS: Final = "\u200c\u200d"
#: Approximate length of the remark on omitted characters.
_REMARK_LENGTH: Final = 40


def printable(text: str, *, keep: str = "") -> str:
    r"""Text from data, files or elsewhere for a terminal: characters that it would obey are shown as Python escapes.

    Args:
        keep: characters to leave as they are, such as the line feeds of a message.

    Examples:
        >>> print(printable("a\x1b[31mb\u202ec"), printable("π 数"), printable("é\n", keep="\n"), end="")
        a\x1b[31mb\u202ec π 数 é
    """
    # Most text needs no look at its characters.
    if text.isprintable():
        return text
    kept = keep + _JOINERS
    return "".join(
        character.encode("unicode_escape", "surrogatepass").decode("ascii")
        if character not in kept and unicodedata.category(character) in _OBEYED
        else character
        for character in text
    )


def shell_command(*words: object) -> str:
    r"""A command as messages show it: each word as one word of a shell, whatever its characters are.

    Words with characters that a terminal would obey have the form ``$'...'`` of bash and zsh.

    Examples:
        >>> print(shell_command("gnnloom", "ingest", "web", "my $(file).txt", "a\tb's", 5))
        gnnloom ingest web 'my $(file).txt' $'a\tb\'s' 5
    """
    import shlex  # noqa: PLC0415 - only for messages

    texts = map(str, words)
    return " ".join(shlex.quote(text) if printable(text) == text else _escaped(text) for text in texts)


def _escaped(text: str) -> str:
    """The text in the form ``$'...'``, with ASCII escapes for all that a terminal would obey."""
    escapes = {"\\": "\\\\", "'": "\\'", "\t": "\\t", "\n": "\\n"}
    for character in set(text) - escapes.keys():
        if printable(character) != character:
            escapes[character] = "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))
    return "$'" + "".join(escapes.get(character, character) for character in text) + "'"


def reason_of(error: Exception) -> str:
    r"""Message of another library's error, in one line: the message may quote a stranger's text.

    >>> reason_of(ValueError("dtype <\n8"))
    'ValueError: dtype <\\n8'
    """
    return f"{type(error).__name__}: {printable(str(error))}"


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and end with a remark between them if it has more than ``most`` characters.

    The end of a message says what to do.

    >>> shortened("0123456789" * 10, 60)
    '0123456789 [... 80 characters left out ...] 0123456789'
    """
    if len(text) <= most:
        return text
    kept = max(1, (most - _REMARK_LENGTH) // 2)
    return f"{text[:kept]} [... {len(text) - 2 * kept:,} characters left out ...] {text[-kept:]}"


def counted(count: int, noun: str) -> str:
    """A count before its noun, in the singular or the plural of the noun's last word.

    Examples:
        >>> counted(1, "vertex"), counted(2000, "vertex"), counted(0, "row block")
        ('1 vertex', '2,000 vertices', '0 row blocks')
    """
    if count == 1:
        return f"1 {noun}"
    *first, last = noun.split(" ")
    return " ".join([f"{count:,}", *first, PLURALS.get(last, f"{last}s")])


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """The end of a message about an unknown name: the most similar known name, or else all known names.

    Args:
        otherwise: text before the list of all known names; empty for no list.

    Examples:
        >>> did_you_mean("hiden", ["hidden", "layers"]), did_you_mean("x", ["hidden", "layers"], "there are")
        ('did you mean hidden?', 'there are hidden, layers')
    """
    import difflib  # noqa: PLC0415 - only for these messages

    names = list(dict.fromkeys(known))
    # Most mistakes are of case, which would count as other letters.
    close = [each for each in names if each.lower() == name.lower()] or difflib.get_close_matches(name, names, 1)
    if close:
        return f"did you mean {close[0]}?"
    return f"{otherwise} {', '.join(names)}" if otherwise else ""
