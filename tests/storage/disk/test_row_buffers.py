"""Memory of rows is used again only once it was given back."""

from __future__ import annotations

import numpy as np

from gnnloom.storage.disk.row_buffers import RowBuffers


def test_memory_that_was_given_back_is_used_again() -> None:
    buffers = RowBuffers()
    first, second = (buffers.take((3, 4), np.dtype(np.float32)) for _ in range(2))
    first[:], second[:] = 1, 2
    assert not np.shares_memory(first, second)
    buffers.give_back(first)
    smaller = buffers.take((1, 5), np.dtype(np.float64))
    assert smaller.shape == (1, 5)
    assert smaller.dtype == np.float64
    assert np.shares_memory(smaller, first)
    assert not np.shares_memory(smaller, second)
    buffers.give_back(smaller)
    # The whole memory is there again, not only what was taken last.
    assert np.shares_memory(buffers.take((3, 4), np.dtype(np.float32)), first)


def test_more_rows_than_were_given_back_get_new_memory() -> None:
    buffers = RowBuffers()
    small = buffers.take((2, 2), np.dtype(np.int64))
    buffers.give_back(small)
    large = buffers.take((200, 2), np.dtype(np.int64))
    assert large.shape == (200, 2)
    assert not np.shares_memory(large, small)
    assert buffers.take((0, 2), np.dtype(np.int64)).shape == (0, 2)


def test_no_more_memory_is_kept_than_is_wanted() -> None:
    buffers = RowBuffers(most=1)
    first, second = (buffers.take((3, 4), np.dtype(np.float32)) for _ in range(2))
    buffers.give_back(first)
    buffers.give_back(second)
    assert np.shares_memory(buffers.take((3, 4), np.dtype(np.float32)), first)
    assert not np.shares_memory(buffers.take((3, 4), np.dtype(np.float32)), second)


def test_a_large_buffer_has_room_for_a_few_more_rows() -> None:
    buffers, bytes_ = RowBuffers(), np.dtype(np.uint8)
    first = buffers.take((3 << 20,), bytes_)
    first[:] = 7
    address = first.ctypes.data
    buffers.give_back(first)
    second = buffers.take((3 << 20, 1, 1), bytes_)
    assert second.ctypes.data == address
    buffers.give_back(second)
    third = buffers.take(((3 << 20) + (1 << 18),), bytes_)
    assert third.ctypes.data == address
    assert (third[: 3 << 20] == 7).all()
