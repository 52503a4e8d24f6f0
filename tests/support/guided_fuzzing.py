"""Coverage-guided fuzzing of one reader with atheris, which keeps inputs that reach new code and changes them further.

``make fuzz`` runs this for every reader, in a process of its own, if atheris is installed. libFuzzer ends the process,
so what was found goes to a file as it is found.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import atheris

# Branches of what is imported here are counted; NumPy and others run at full speed.
with atheris.instrument_imports(include=["gnnloom.pipeline.sources", "gnnloom.storage", "gnnloom.workflows.recipe"]):
    from support.fuzzing import Outcome, Target, read_one, targets, valid_files
    from support.resealing import seal_again


class _Guided:
    """Reads what libFuzzer makes: the first two bytes choose a file and whether to seal it, the rest is its content."""

    def __init__(self, target: Target, folder: Path, counts: Path) -> None:
        self._target, self._copy, self._counts = target, folder / "damaged", counts
        self._valid = folder / "valid"
        self._files = valid_files(target, self._valid)
        self.outcome = Outcome()
        shutil.copytree(self._valid, self._copy)
        self.corpus = folder / "corpus"
        self.corpus.mkdir()
        for number, file in enumerate(self._files[:256]):
            (self.corpus / str(number)).write_bytes(bytes([number, number % 2]) + (self._valid / file).read_bytes())

    def __call__(self, data: bytes) -> None:
        if len(data) < 2:
            return
        file = self._files[data[0] % len(self._files)]
        (self._copy / file).write_bytes(data[2:])
        if data[1] % 2:
            seal_again(self._copy, file)
        before = len(self.outcome.failures)
        read_one(self._target, self._copy, f"{self._target.name}, {file}, {data[2:80]!r}", self.outcome)
        shutil.rmtree(self._copy / "into", ignore_errors=True)
        # Sealing may change the manifest as well.
        shutil.copytree(self._valid, self._copy, dirs_exist_ok=True)
        content = {"inputs": self.outcome.inputs, "refused": self.outcome.refused, "failures": self.outcome.failures}
        if len(self.outcome.failures) > before or self.outcome.inputs % 50 == 0:
            self._counts.write_text(json.dumps(content))


def main() -> None:
    """Fuzz one reader."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--seconds", type=int, default=180)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--counts", type=Path, required=True, help="file for the counts")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="guided-", dir=given.counts.parent))
    guided = _Guided(targets()[given.name], folder, given.counts)
    options = [
        f"-max_total_time={given.seconds}",
        f"-seed={given.seed}",
        "-max_len=65536",
        "-timeout=120",
        "-rss_limit_mb=4096",
    ]
    atheris.Setup([sys.argv[0], *options, str(guided.corpus)], guided)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
