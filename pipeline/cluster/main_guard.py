"""Checks that a script may start worker processes.

A new worker process imports the script that started it, as Python's ``multiprocessing`` does with the start method
``spawn``. A script that starts workers must therefore do so below ``if __name__ == "__main__":``, or each worker would
run the whole script again. Without this check, Python would say so in a traceback of every worker.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import FrameType

from gnnloom.storage.errors import InputError


def check_main_guard() -> None:
    """Check that the script that runs may start worker processes; notebooks and ``python -c`` always may.

    Raises:
        InputError: the script reached this call outside of ``if __name__ == "__main__":``.
    """
    main = sys.modules.get("__main__")
    path, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    # Workers do not import the file behind `python -m package`.
    if path is None or (spec is not None and spec.name.endswith("__main__")):
        return
    frame = _module_frame(sys._getframe(), vars(main))  # noqa: SLF001 - the documented way to look at the stack
    if frame is not None and not _is_guarded(Path(path), frame.f_lineno):
        raise InputError(
            f'{path}:{frame.f_lineno}: this starts worker processes, so it must be inside `if __name__ == "__main__":`;'
            " or pass workers=0 to do all work in this process"
        )


def _module_frame(frame: FrameType | None, names: dict[str, object]) -> FrameType | None:
    """The frame that executes the body of the module with these names; None from other threads and after its end."""
    while frame is not None and not (frame.f_globals is names and frame.f_code.co_name == "<module>"):
        frame = frame.f_back
    return frame


def _is_guarded(script: Path, line: int) -> bool:
    """Whether a line of a script is inside an ``if`` about ``__name__``; True if the script cannot be read."""
    try:
        body = ast.parse(script.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return True
    holders = [each for each in body if isinstance(each, ast.If) and each.lineno <= line <= (each.end_lineno or line)]
    return any(isinstance(name, ast.Name) and name.id == "__name__" for each in holders for name in ast.walk(each.test))
