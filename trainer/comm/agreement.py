"""Keeps ranks in agreement: a failure on one rank fails all ranks, and values that must be equal are compared.

The exchange of :func:`together` is always one number per rank. So ranks that were started with different commands, or
with different versions of gnnloom, take part in the same exchange, and notice that they differ.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.errors import GnnloomError, InputError, in_one_line
from gnnloom.storage.format.arrays import Array, digest_bytes
from gnnloom.storage.wording import counted
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.place.arrays import as_array

Result = TypeVar("Result")

#: Name of the fact that describes the rank's activity. Ranks that differ in it have no other facts in common.
COMMAND: Final = "command"
#: Bits of a hash of facts; a float64 holds it exactly.
_HASH_BITS: Final = 52
#: Hexadecimal digits of a digest that float64 holds exactly.
_DIGITS: Final = 13
#: Maximum number of kinds of ranks, of ranks of a kind, and of facts that an error about differing ranks names.
_MOST_KINDS, _MOST_RANKS, _MOST_FACTS = 4, 3, 3


@dataclass(frozen=True)
class Alike:
    """Facts that must be the same on all ranks.

    Attributes:
        facts: name to value, as an error names them.
        advice: advice if the facts differ.
    """

    facts: Mapping[str, str]
    advice: str


class CollectiveError(GnnloomError):
    """An error that is raised on every rank of a group.

    Attributes:
        reports: True on the one rank that writes the message: the lowest rank on which the error occurred.
        code: exit code, the same on every rank.
    """

    def __init__(self, message: str, *, reports: bool, code: int) -> None:
        super().__init__(message)
        self.reports = reports
        self.code = code

    def __reduce__(self) -> tuple[Callable[..., CollectiveError], tuple[object, ...]]:
        """For processes that plan on behalf of others and pickle the error."""
        return partial(CollectiveError, reports=self.reports, code=self.code), self.args


def together(
    comm: Communicator, action: Callable[[], Result], alike: Callable[[Result], Alike] | None = None
) -> Result:
    """Run ``action`` on every rank; if it fails on one rank, fail on all. Collective.

    Args:
        action: must not communicate, because a failed rank would leave the others waiting.
        alike: facts that must be the same on all ranks, given the result of the action.

    Raises:
        CollectiveError: ``action`` raised a GnnloomError, or an error of storage or memory, on some rank; or the ranks
            differ; the message names the facts and the ranks.
    """
    failure: Exception | None = None
    message, state = "", 0
    mine = Alike({}, "")
    try:
        result = action()
        if alike is not None:
            mine = alike(result)
            state = -_hash(mine.facts)
    except Exception as error:
        reported = in_one_line(error)
        # Other exceptions are defects: the launcher of the rank aborts the whole job, so no rank waits for this one.
        if reported is None:
            raise
        failure, (message, state) = error, reported
    # Every rank reaches this exchange, whether or not its action failed, so no rank waits for a failed one. A positive
    # number is the exit code of an error, a negative number the hash of facts that must be alike.
    states = comm.gather_numbers([state])[:, 0]
    failed = np.flatnonzero(states > 0)
    if not failed.size:
        if (states != states[0]).any():
            raise _difference(comm, states, mine)
        return result
    first = int(failed[0])
    # Only exit codes travel. A rank that succeeded does not know the text, and `reports` keeps it from printing one.
    raise CollectiveError(
        message or f"rank {first} failed", reports=first == comm.rank, code=int(states[first])
    ) from failure


def broadcast_bytes(comm: Communicator, content: bytes, length: int, root: int) -> bytes:
    """Return one rank's content on every rank. Collective; counted as setup.

    Args:
        length: length of the root's content.
    """
    buffer = torch.tensor(list(content) if comm.rank == root else [0] * length, dtype=torch.uint8)
    comm.broadcast(buffer, root, Kind.SETUP)
    return bytes(buffer.tolist())


def _hash(facts: Mapping[str, str]) -> int:
    """A number from 1 to 2^52 that stands for facts."""
    digest = hashlib.blake2b(_encoded(facts), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> (64 - _HASH_BITS)) + 1


def short_digest(array: Array) -> float:
    """52 bits of the digest of an array's bytes, as a number that ranks can exchange."""
    return float(int(digest_bytes(array)[:_DIGITS], 16))


def tensor_digest(tensor: Tensor) -> float:
    """See :func:`short_digest`."""
    return short_digest(as_array(tensor.detach().contiguous()))


def _encoded(facts: Mapping[str, str]) -> bytes:
    return json.dumps(facts).encode()


def _difference(comm: Communicator, states: NDArray[np.float64], mine: Alike) -> CollectiveError:
    """The error for ranks that differ; the same message on every rank. Collective.

    Args:
        states: (size,) a number for every rank, equal for equal facts.
    """
    _, firsts, kinds, sizes = np.unique(states, return_index=True, return_inverse=True, return_counts=True)
    # The most frequent kinds, in the order of their lowest ranks.
    shown = sorted(np.argsort(-sizes, kind="stable")[:_MOST_KINDS], key=lambda kind: firsts[kind])
    content = _encoded(mine.facts)
    lengths = comm.gather_numbers([len(content)])[:, 0].astype(int)
    described: list[tuple[list[int], dict[str, str]]] = []
    for kind in shown:
        # One rank of each kind describes it to all ranks, so no rank receives a description from every other rank.
        first = int(firsts[kind])
        facts = json.loads(broadcast_bytes(comm, content, int(lengths[first]), first))
        described.append((np.flatnonzero(kinds == kind).tolist(), facts))
    others = int(sizes.sum() - sizes[shown].sum())
    more = f"; {counted(others, 'more rank')} with other values" if others else ""
    message = f"ranks differ in {_differences(described)}{more}; {mine.advice}"
    return CollectiveError(message, reports=comm.rank == 0, code=InputError.exit_code)


def _differences(described: Sequence[tuple[list[int], dict[str, str]]]) -> str:
    """``--seed: 0 (ranks 0, 1), 7 (rank 2)`` for every fact in which the kinds of ranks differ.

    Args:
        described: ranks of one kind, and their facts.
    """
    texts: dict[str, str] = {}
    for name in dict.fromkeys(name for _, facts in described for name in facts):
        ranks: dict[str, list[int]] = {}
        for numbers, facts in described:
            ranks.setdefault(facts.get(name, "unknown"), []).extend(numbers)
        if len(ranks) > 1:
            shown = (f"{value} ({named_ranks(found, _MOST_RANKS)})" for value, found in ranks.items())
            texts[name] = f"{name}: " + ", ".join(shown)
    if COMMAND in texts:
        return texts[COMMAND]
    hidden = len(texts) - _MOST_FACTS
    return "; ".join([*texts.values()][:_MOST_FACTS]) + (f"; and {hidden} more" if hidden > 0 else "")


def named_ranks(ranks: Sequence[int], most: int) -> str:
    """``rank 2``, ``ranks 0, 1`` or ``ranks 0, 1, 2 and 5 more``, with at most ``most`` ranks named."""
    shown = ", ".join(map(str, sorted(ranks)[:most]))
    hidden = len(ranks) - most
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}" + (f" and {hidden} more" if hidden > 0 else "")
