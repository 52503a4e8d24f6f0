"""A script that starts workers outside of its `__main__` guard is told so, instead of being run by every worker."""

from __future__ import annotations

import runpy
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from gnnloom.storage.errors import InputError

CHECK = "from gnnloom.pipeline.cluster.open_cluster import check_main_guard\n"
GUARDED = [
    'if __name__ == "__main__":\n    check_main_guard()\n',
    'if "__main__" == __name__ and True:\n    check_main_guard()\n',
]
IN_FUNCTION = "def main():\n    check_main_guard()\n\nif __name__ == '__main__':\n    x = 1\n    main()\n"


def write(folder: Path, text: str) -> Path:
    script = folder / "script.py"
    script.write_text(CHECK + textwrap.dedent(text))
    return script


@pytest.mark.parametrize("text", [*GUARDED, IN_FUNCTION])
def test_guarded_scripts_may_start_workers(tmp_path: Path, text: str) -> None:
    runpy.run_path(str(write(tmp_path, text)), run_name="__main__")


@pytest.mark.parametrize(
    ("text", "line"),
    [("check_main_guard()\n", 2), ("def main():\n    check_main_guard()\n\nif True:\n    main()\n", 6)],
)
def test_others_are_told_the_line_that_needs_the_guard(tmp_path: Path, text: str, line: int) -> None:
    script = write(tmp_path, text)
    with pytest.raises(InputError, match=f'script.py:{line}: .* inside `if __name__ == "__main__":`'):
        runpy.run_path(str(script), run_name="__main__")


def test_notebooks_and_programs_on_the_command_line_need_no_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    exec(f"{CHECK}check_main_guard()", vars(notebook))


@pytest.mark.long
def test_an_unguarded_script_ends_with_one_message(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import gnnloom\n"
        f"gnnloom.generate('tiny', 'sbm', vertices=60, edges=200, workers=1, catalog={str(tmp_path)!r})\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert "script.py:2: this starts worker processes" in done.stderr
    script.write_text(script.read_text().replace("\ngnnloom", '\nif __name__ == "__main__":\n    gnnloom'))
    subprocess.run([sys.executable, str(script)], check=True, timeout=300)
