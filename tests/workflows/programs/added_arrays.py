"""Runs commands with three more entries in the registry of arrays per vertex: added_arrays.py CATALOG COMMAND...

Two commands are only known here: ``damage DATASET ARRAY VALUE`` changes the value of the last vertex and leaves every
digest right, and ``in-memory DATASET ARRAY FILE`` stores an array with the Python API. Prints what the commands that
failed said, as JSON by command.
"""

import json
import shlex
import sys
from types import MappingProxyType

from gnnloom.storage.format import vertex_arrays
from gnnloom.storage.format.vertex_arrays import VertexArray

ADDED = (
    VertexArray(
        name="weight",
        help="(n,) numbers.",
        dtypes=("float32",),
        expected="a finite number, or NaN for 1",
        fill=1,
        export="weights",
    ),
    VertexArray(
        name="timestamp", help="(n,) seconds.", dtypes=("int64",), kinds="iu", expected="seconds", fill=0, lowest=0
    ),
    VertexArray(
        name="coordinate", help="(n, A) numbers.", dims=("axis",), dtypes=("float64",), expected="numbers", fill=0
    ),
)
# Before anything that derives something from the registry is imported, as if the entries were in its file.
added = MappingProxyType({**vertex_arrays.VERTEX_ARRAYS, **{array.name: array for array in ADDED}})
setattr(vertex_arrays, "VERTEX_ARRAYS", added)  # noqa: B010 - it is Final

import numpy as np  # noqa: E402

import gnnloom  # noqa: E402
from gnnloom.storage import Catalog  # noqa: E402
from gnnloom.storage.format.artifact import Artifact  # noqa: E402
from support.damage import replace_array  # noqa: E402
from support.in_process import run_command  # noqa: E402


def damage_last(vertices: Artifact, name: str, value: int) -> None:
    replace_array(vertices, name, lambda array: np.append(array[:-1], array.dtype.type(value)))


catalog, *commands = sys.argv[1:]
failed = {}
for command in commands:
    words = shlex.split(command)
    if words[0] == "damage":
        damage_last(Catalog(catalog)[words[1]].find("vertices"), words[2], int(words[3]))
        continue
    if words[0] == "in-memory":
        gnnloom.features(words[1], catalog=catalog, workers=0, **{words[2]: np.load(words[3])})
        continue
    done = run_command("--catalog", catalog, *words)
    if done.returncode:
        failed[command] = done.stdout + done.stderr
print(json.dumps(failed))
