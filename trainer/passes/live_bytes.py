"""Measures the memory of tensors in torch's operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from weakref import finalize

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside a ``with`` block, adds up live tensors with a given number of rows that operations take and return.

    Attributes:
        peak: maximum number of bytes at one time.
    """

    def __init__(self, num_rows: int) -> None:
        """Begin without tensors.

        Args:
            num_rows: length of a dimension of counted tensors; dimensions of parameters have other lengths.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._num_rows, self._live = num_rows, dict[int, int]()
        self.peak = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Telling torch's compiler to leave this class alone would import the compiler, which takes seconds.
        return False

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves((args, kwargs, result)):
            if isinstance(tensor, Tensor) and self._num_rows in tensor.shape:
                self._count(tensor)
        self.peak = max(self.peak, sum(self._live.values()))
        return result

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address not in self._live:
            self._live[address] = storage.nbytes()
            finalize(storage, self._live.pop, address, None).atexit = False
