"""What the system, storage or memory refuse is one line with a documented exit code; defects keep their traceback."""

from __future__ import annotations

import errno
import os

import pytest
import torch

from gnnloom.storage.errors import MOST_MESSAGE, BudgetError, IncompleteError, InputError, in_one_line


def _system(number: int, path: str | None = "catalog/web") -> OSError:
    return OSError(number, os.strerror(number), path) if path else OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("error", "says", "code"),
    [
        (_system(errno.ENOSPC), "catalog/web: No space left on device; the disk of /", 1),
        (_system(errno.EROFS), "catalog/web: Read-only file system; make it writable, or choose another folder", 1),
        (_system(errno.EACCES), "catalog/web: Permission denied; allow this user to read and write there", 1),
        (_system(errno.EFBIG, None), "File too large; the file system allows no larger file", 1),
        (OSError("4096 requested and 0 written"), "4096 requested and 0 written; finished work is kept", 1),
        (_system(errno.ENOTDIR), "catalog/web: Not a directory; choose another path", 3),
        (MemoryError(), "out of memory", 1),
        (BudgetError("too small"), "too small", 3),
        (IncompleteError("begun"), "begun", 4),
    ],
)
def test_errors_that_a_user_can_fix_are_one_line(error: Exception, says: str, code: int) -> None:
    reported = in_one_line(error)
    assert reported is not None
    assert reported[0].startswith(says)
    assert reported[1] == code


def test_torch_without_memory_is_one_line() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 60)
    reported = in_one_line(raised.value)
    assert reported is not None
    assert reported[0].startswith("out of memory")


@pytest.mark.parametrize(
    "error", [ValueError("x"), RuntimeError("x"), _system(errno.ECONNREFUSED), _system(errno.ENOENT, None)]
)
def test_defects_keep_their_traceback(error: Exception) -> None:
    assert in_one_line(error) is None


def test_a_message_that_quotes_a_long_text_keeps_its_ends() -> None:
    reported = in_one_line(InputError(f"edges.csv, line 7: found {'x' * 10**6}; if ids are names, add --ids names"))
    assert reported is not None
    assert len(reported[0]) <= MOST_MESSAGE
    assert reported[0].startswith("edges.csv, line 7: found xxx")
    assert reported[0].endswith("; if ids are names, add --ids names")
