"""The figures of an epoch as users see them: counted from 1, with one name each, wherever they are shown.

Stored lines count epochs from 0 and have the sizes of messages by kind, as ``bytes`` and ``messages``. Tables, the
Python API, the log and other programs' logs show the figures that this module derives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: Stored figures that have a number for every kind of message, and what users see.
_SHOWN = {"bytes": "bytes_sent", "messages": "messages_sent"}
#: Entries of a line that identify the epoch and describe how it ran, rather than its results or costs.
_FACTS = {"epoch", "threads"}


def shown_epoch(line: Mapping[str, Any]) -> int:
    """The number of an epoch; 1 for the first one, as for checkpoints, which are named by the epochs that are done."""
    return int(line["epoch"]) + 1


def shown_figures(line: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """The figures of an epoch: name, kind and number, without profiles and figures that were not measured.

    Figures that are counted by kind have their sum first, with an empty kind, as all others have.
    """
    for name, value in line.items():
        if isinstance(value, Mapping):
            shown = _SHOWN.get(name, name)
            yield shown, "", float(sum(value.values()))
            yield from ((shown, kind, float(figure)) for kind, figure in value.items())
        elif isinstance(value, int | float) and name not in _FACTS:
            yield name, "", float(value)
