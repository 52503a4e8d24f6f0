"""What a rank warns of is shown by every command that starts ranks, and its progress by a verbose one."""

from __future__ import annotations

import logging
import os
import sys

import pytest

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


def test_warnings_of_ranks_stay_warnings(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "gnnloom.trainer.job.launch"):
        code, last_lines = _run([sys.executable, "-c", PROGRAM], dict(os.environ), None)
    found = {record.getMessage(): record.levelno for record in caplog.records}
    progress = dict.fromkeys(["epoch 1", "of a library", "printed"], logging.INFO)
    assert found == {**progress, "about 5 minutes": logging.WARNING}
    assert code == 0
    assert "note: about 5 minutes" in last_lines
