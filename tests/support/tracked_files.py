"""Refuses tracked files that do not belong in a source tree: binaries, and files over 200 kB outside tests/data.

Pictures in docs/images may be binary.

python tests/support/tracked_files.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_LARGEST = 200_000
_DATA = "tests/data/"
#: Pictures of the documents; they may be binary, but not large.
_PICTURES = "docs/images/*.png"


def misplaced_files(root: Path) -> list[str]:
    """A line for every tracked file that is binary or too large; empty if all is well."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    # A file that is deleted and not yet committed is still listed.
    names = [name for name in listed.split("\0") if name and not name.startswith(_DATA) and (root / name).is_file()]
    return [f"{name}: {reason}" for name in names if (reason := _reason_against(root, name))]


def _reason_against(root: Path, name: str) -> str:
    content = (root / name).read_bytes()
    if len(content) > _LARGEST:
        return f"{len(content):,} bytes, more than {_LARGEST:,}; keep it out of the repository"
    is_binary = b"\0" in content and not Path(name).match(_PICTURES)
    return "binary; keep it out of the repository" if is_binary else ""


if __name__ == "__main__":
    sys.exit("\n".join(misplaced_files(Path.cwd())) or 0)
