"""Fills memory without values with NaN, so that a result that depends on such memory differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from gnnloom.trainer.place import workspace
from gnnloom.trainer.place.workspace import Workspace

#: All bits set: not a number in every floating-point type, and -1 in every integer type.
_BYTE = 0xFF


@contextmanager
def poisoned_memory() -> Iterator[list[int]]:
    """Poison what a workspace hands out and takes back, and what torch and NumPy allocate without values.

    Yields:
        The bytes of every tensor that workspaces hand out.
    """
    handed_out: list[int] = []
    empty, give_back = Workspace.empty, workspace._Segment.give_back

    def empty_and_poisoned(self: Workspace, *arguments: Any) -> torch.Tensor:
        tensor: torch.Tensor = _poisoned(empty(self, *arguments))
        handed_out.append(tensor.nbytes)
        return tensor

    def give_back_poisoned(self: workspace._Segment, start: int, stop: int) -> None:
        np.frombuffer(self.memory, np.uint8)[start:stop] = _BYTE
        give_back(self, start, stop)

    with ExitStack() as patches:
        patches.enter_context(patch.object(Workspace, "empty", empty_and_poisoned))
        patches.enter_context(patch.object(workspace._Segment, "give_back", give_back_poisoned))
        for module, name in ((torch, "empty"), (torch, "empty_like"), (np, "empty"), (np, "empty_like")):
            patches.enter_context(patch.object(module, name, _poisoning(getattr(module, name))))
        yield handed_out


def _poisoning(allocate: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: _poisoned(allocate(*arguments, **options))


def _poisoned(memory: Any) -> Any:
    """The same tensor or array, with all bits set; unless its memory is of another kind than plain numbers."""
    if isinstance(memory, torch.Tensor):
        if memory.device.type == "cpu" and memory.is_contiguous():
            memory.detach().view(-1).view(torch.uint8).fill_(_BYTE)
    elif memory.dtype.kind in "fiu" and memory.flags.c_contiguous and memory.flags.writeable:
        memory.reshape(-1).view(np.uint8)[:] = _BYTE
    return memory
