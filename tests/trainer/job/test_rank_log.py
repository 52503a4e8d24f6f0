"""What a rank warns of is shown by every command that starts ranks, and its progress by a verbose one."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import pytest

from gnnloom.storage.meters import PROGRESS
from gnnloom.trainer.job.launch import _run

PROGRAM = """
import logging
from gnnloom.trainer.job.rank_log import log_to_stderr
log_to_stderr(logging.INFO)
logging.getLogger("gnnloom.trainer.loop").info("epoch %d", 1)
logging.getLogger("gnnloom.trainer.loop").warning("about %d minutes", 5)
logging.getLogger("gnnloomy").warning("of a library")
print("printed")
"""
STATES = """
from gnnloom.storage.meters import ProgressMeter
from gnnloom.trainer.job.rank_log import report_progress
report_progress()
meter = ProgressMeter("layers", 2, "rows")
meter.advance(5)
meter.advance(6)
"""


def test_warnings_of_ranks_stay_warnings(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "gnnloom.trainer.job.launch"):
        code, last_lines = _run([sys.executable, "-c", PROGRAM], dict(os.environ), None)
    found = {record.getMessage(): record.levelno for record in caplog.records}
    progress = dict.fromkeys(["epoch 1", "of a library", "printed"], logging.INFO)
    assert found == {**progress, "about 5 minutes": logging.WARNING}
    assert code == 0
    assert "note: about 5 minutes" in last_lines


def test_the_progress_of_a_rank_is_that_of_the_process_that_started_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, PROGRESS.name):
        _, last_lines = _run([sys.executable, "-c", STATES], dict(os.environ), None)
    records: list[Any] = [record for record in caplog.records if record.name == PROGRESS.name and record.args]
    states = [record.args[0] for record in records]
    assert [(state.phase, state.done, state.tasks, state.count) for state in states] == [
        ("layers", 0, 2, 0),
        ("layers", 2, 2, 11),
    ]
    # The end of a rank that fails has its messages.
    assert not [line for line in last_lines if "layers" in line]
