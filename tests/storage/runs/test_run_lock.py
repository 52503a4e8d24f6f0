"""Only one process at a time writes a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.errors import ExistsError
from gnnloom.storage.runs.run import Run, sole_writer

HOLDER = """
import sys, time
from pathlib import Path
from gnnloom.storage.runs.run import Run, sole_writer
with sole_writer(Run(Path(sys.argv[1]))):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_killed_writer_releases_its_run(tmp_path: Path) -> None:
    run = Run(Catalog(tmp_path).create("graph").run_path("mine"))
    command = [sys.executable, "-c", HOLDER, str(run.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ExistsError, match="run mine: "), sole_writer(run):
            pass
        with sole_writer(Run(run.path.parent / "other")):
            pass
        holder.kill()
    with sole_writer(run):
        pass
