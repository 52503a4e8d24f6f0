"""Gradients of results that are not single numbers."""

from __future__ import annotations

from torch import Tensor


def backward(result: Tensor, gradient: Tensor) -> None:
    """Do what ``result.backward(gradient)`` does, which imports the part of torch's compiler that takes a second."""
    (result * gradient).sum().backward()  # type: ignore[no-untyped-call]
