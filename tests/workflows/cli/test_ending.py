"""Ctrl-C ends a command in time, also while compiled code runs, and however Python wraps the exception."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

_PROGRAM = """
import signal, sys, threading
from gnnloom.workflows.cli.ending import ended_in_time
def handler(number, frame): {handled}
signal.signal(signal.SIGINT, handler)
with ended_in_time({{signal.SIGINT: (handler, "ended")}}, 0.2):
    {before}
    print("begun", flush=True)
    {work}
print("left")
"""
#: A call that no signal interrupts; it lets other threads run, as compiled kernels do.
_COMPUTE = "import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)"
_CLOSES_SLOWLY = "\n    try: signal.pause()\n    finally: __import__('time').sleep(60)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("handled", "before", "work", "code", "says"),
    [
        ("raise KeyboardInterrupt", "", _COMPUTE, 130, "ended"),
        # What is closed takes too long.
        ("raise KeyboardInterrupt", "", _CLOSES_SLOWLY, 130, "ended"),
        # Another handler is left alone, as that of ranks that write a checkpoint.
        ("None", "signal.signal(signal.SIGINT, lambda *_: None)", "__import__('time').sleep(1.5)", 0, ""),
        ("None", "", "signal.pause()", 0, ""),
    ],
)  # fmt: skip
def test_a_signal_ends_the_block_in_time(handled: str, before: str, work: str, code: int, says: str) -> None:
    program = _PROGRAM.format(handled=handled, before=before, work=work)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        # Into the call.
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err.strip(), out.strip()) == (code, says, "left" if code == 0 else "")


_LATE = """
import signal, sys, time
from contextlib import suppress
from signal import raise_signal
from gnnloom.trainer.job.stop import answering, interrupted_by, StoppedError, StopRequest
from gnnloom.workflows.cli.ending import ended_in_time
def handler(number, frame): raise KeyboardInterrupt
signal.signal(signal.SIGTERM, handler)
with ended_in_time({{signal.SIGTERM: (handler, "ended")}}, 0.2):
    # No other thread runs before the main thread waits for something.
    sys.setswitchinterval(60)
    {answers}
    time.sleep(1)
print("left")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "answers",
    [
        "with answering(signal.SIGTERM, lambda *_: None): raise_signal(signal.SIGTERM)",
        "with suppress(StoppedError), interrupted_by(StopRequest(), [signal.SIGTERM]): raise_signal(signal.SIGTERM)",
    ],
)
def test_a_signal_that_was_answered_ends_nothing_however_late_it_is_noticed(answers: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LATE.format(answers=answers)], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "left\n")


_MAIN = """
import signal, threading
from gnnloom.workflows.cli import main
def command():
    {command}
main.cli = command
main.main()
"""


@pytest.mark.parametrize(
    "command",
    [
        # As Python dresses it up in a descriptor that is being named.
        "\n    try: raise KeyboardInterrupt\n    except BaseException as error: raise RuntimeError('x') from error",
        # A thread that computes on.
        f"threading.Thread(target=lambda: exec({_COMPUTE!r})).start(); raise SystemExit(130)",
        # A worker that does not look at its parent yet; its output keeps the pipes open.
        "from multiprocessing import Process; Process(target=signal.pause).start(); raise SystemExit(130)",
    ],
)
def test_an_interrupted_command_leaves_at_once(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MAIN.format(command=command)], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


#: Runs the command, and receives a signal when it imports a module.
_SIGNALED_WHILE_IMPORTING = """
import os, runpy, sys

class Signals:
    def find_spec(name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Signals)
sys.argv[1:] = ["catalog", "ls"]
runpy.run_module("gnnloom", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["click", "gnnloom.storage.wording", "gnnloom.workflows.cli.data.catalog"])
@pytest.mark.parametrize(("number", "line"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "ended by SIGTERM")])
def test_a_signal_during_the_imports_of_a_command_is_one_line(
    tmp_path: Path, module: str, number: signal.Signals, line: str
) -> None:
    program = _SIGNALED_WHILE_IMPORTING.format(module=module, number=int(number))
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 128 + number
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(line)
