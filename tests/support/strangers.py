"""A catalog as a stranger writes it: stored files name code wherever text may be, and the code is ready to be imported.

The code leaves a mark where it is imported, so that a test sees what ran in this process and in others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gnnloom.storage.disk.files import read_json, write_json

#: Names of the same code: in the current folder, in the catalog, in an installed package, and a module of Python.
FORMS = ("stranger:Evil", "catalog.web.runs.old.stranger:Evil", "strangers_package.inner:Evil", "antigravity:fly")
#: Names that a terminal, a shell, a spreadsheet or a reader of markup would obey, and a long one.
HOSTILE_NAMES: tuple[str, ...] = (
    "[/n1]", "[bold]v2", "[link=http://x]y[/link]", "\x1b[31m", "\x1b]8;;http://x\x07", '=HYPERLINK("http://x")',
    "$(touch x)", ";touch x", "a\tb", "a\nb", "\u202egnp.exe", "n" * 10_000,
)  # fmt: skip
#: Options of a training that take such a name, by the run of the prepared catalog that has the option.
NAMED: Mapping[str, tuple[str, ...]] = {"old": ("model", "loss", "metric"), "pairs": ("model", "decoder")}

_CODE = """from pathlib import Path
Path(__file__ + ".ran").touch()
from torch import nn
class Evil(nn.Module):
    def forward(self, x, edge_index):
        return x
def fly(*given):
    return given[0]
"""


def plant(folder: Path, catalog: Path, site: Path) -> None:
    """Write the code to all places that its names lead to.

    Args:
        folder: the current folder of the commands, with the catalog in it.
        site: folder of installed packages.
    """
    runs = (path.parent for path in catalog.glob("web/runs/*/config.json"))
    for place in (folder, *runs, site / "strangers_package"):
        place.mkdir(parents=True, exist_ok=True)
        (place / "stranger.py").write_text(_CODE)
    for name in ("__init__.py", "inner.py"):
        (site / "strangers_package" / name).write_text(_CODE)


def ran(*folders: Path) -> list[str]:
    """What ran of the code since the last call: its files, and modules that this process imported."""
    marks = [path for folder in folders for path in folder.rglob("*.ran")]
    for path in marks:
        path.unlink()
    names = {form.partition(":")[0].partition(".")[0] for form in FORMS} - {"catalog"}
    modules = [name for name in sys.modules if name.partition(".")[0] in names or name.startswith("catalog.web")]
    for name in modules:
        del sys.modules[name]
    return [*map(str, marks), *modules]


def name_code(run: Path, names: Mapping[str, Any]) -> None:
    """Replace fields of a run's configuration, with the right checksum."""
    path = run / "config.json"
    write_json(path, {**read_json(path), **names})


def hostile_copies(content: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Copies of JSON in which one text, or one item of a list, is the name of code; with the place of the text."""
    for place in _texts(content):
        copy = json.loads(json.dumps(content))
        inner = copy
        for step in place[:-1]:
            inner = inner[step]
        inner[place[-1]] = name
        yield "/".join(map(str, place)), copy


def _texts(content: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, value in items:
        # The metadata of arrays, which are many; the tests of damage change them.
        if name in {"arrays", "sections"}:
            continue
        if value is None or isinstance(value, str):
            yield (*place, name)
        yield from _texts(value, (*place, name))
