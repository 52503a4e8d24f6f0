"""What fails on one rank fails on all, with one message; see also the tests of a run's lifecycle."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.agreement import CollectiveError, together
from support.lone import LoneCommunicator


class SecondOfThree(LoneCommunicator):
    """Rank 1 of three; the first and the last report the given codes."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__()
        self.rank, self.size = 1, 3
        self.codes = first, last

    def gather_numbers(self, numbers: Sequence[float]) -> NDArray[np.float64]:
        return np.array([[self.codes[0]], numbers, [self.codes[1]]], np.float64)


def fail() -> None:
    raise InputError("bad input")


def test_the_result_is_returned_if_no_rank_fails() -> None:
    assert together(SecondOfThree(0, 0), lambda: "done") == "done"


def test_the_lowest_failed_rank_reports_its_error() -> None:
    with pytest.raises(CollectiveError, match="bad input") as caught:
        together(SecondOfThree(0, 9), fail)
    assert caught.value.reports
    assert caught.value.code == InputError.exit_code
    assert isinstance(caught.value.__cause__, InputError)


def test_a_failure_elsewhere_fails_here_with_its_code() -> None:
    with pytest.raises(CollectiveError, match="rank 0 failed") as caught:
        together(SecondOfThree(9, 0), lambda: "done")
    assert not caught.value.reports
    assert caught.value.code == 9


def test_the_error_of_a_process_that_plans_is_the_error_of_the_command() -> None:
    # A process hands errors on as a copy does.
    error = copy.copy(CollectiveError("too large", reports=True, code=7))
    assert (str(error), error.reports, error.code) == ("too large", True, 7)


def test_errors_that_are_not_ours_are_not_agreed_on() -> None:
    def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        together(SecondOfThree(0, 0), broken)
