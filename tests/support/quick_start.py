"""Runs the README's quick start in Python on Cora with the installed gnnloom.

    PYTHONPATH=tests python -m support.quick_start DATA

``DATA/cora`` holds Cora; without it, the program says so and ends with 0.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from support.documents import shown_python

README = Path(__file__).resolve().parents[2] / "README.md"


def main() -> None:
    cora = Path(sys.argv[1]).resolve() / "cora"
    if not cora.is_dir():
        sys.stdout.write(f"quick start skipped: {cora} does not exist\n")
        return
    (program,) = [each for each in shown_python(README.read_text()) if "gnnloom.train(" in each]
    with tempfile.TemporaryDirectory(prefix="quick-start-") as folder:
        dataset = Path(folder) / "dataset"
        dataset.mkdir()
        (dataset / "cora").symlink_to(cora)
        done = subprocess.run([sys.executable, "-c", program], cwd=folder, check=True, capture_output=True, text=True)
    accuracy = float(done.stdout.split()[0])
    sys.stdout.write(f"quick start: test accuracy {accuracy:.3f}\n")
    if accuracy < 0.79:
        sys.exit("the quick start trains worse than it should: expected at least 0.79")


if __name__ == "__main__":
    main()
