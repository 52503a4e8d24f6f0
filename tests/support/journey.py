"""A sequence of commands that contains every command of gnnloom once, on a tiny graph, as a user would start them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.recipes import TINY

_GNNLOOM = Path(sys.executable).with_name("gnnloom")
_SETTINGS = " ".join(f"--set {setting}" for setting in TINY)
_TRAIN = "--hidden 4 --epochs 2 --threads 1"

#: Every command of gnnloom, with the programs that start it.
JOURNEY = (
    "gnnloom look edges.txt",
    "gnnloom ingest web edges.txt --undirected --ids compact --workers 1",
    "gnnloom features web random --dim 4 --classes 2 --workers 0",
    "gnnloom partition web --parts 2 --method metis --workers 0",
    "gnnloom partition web --parts 3 --method mtkahypar --workers 0",
    "gnnloom shard web --parts 2 --workers 0",
    f"gnnloom train web/full --ranks 2 {_TRAIN}",
    "gnnloom predict web/full --embeddings",
    "gnnloom sample web --fanout 2,2 --batch-size 8 --epochs 1 --workers 0",
    f"gnnloom train web/sampled --ranks 2 --mode neighbor --fanout 2,2 --batch-size 8 {_TRAIN}",
    "gnnloom propagate web --ranks 2 --steps 2 --threads 1",
    "gnnloom links web random --valid 0.1 --test 0.1 --workers 0",
    "gnnloom export web/full predictions --out predictions.csv",
    "gnnloom report web/full",
    "gnnloom catalog verify web",
    "gnnloom simulate --vertices 1000000 --edges 20000000 --ranks 4,16",
    "gnnloom plan web --ranks 2 --hidden 4,4 --profile frontier",
    "gnnloom completion bash",
    "gnnloom doctor",
    "gnnloom check",
    "gnnloom demo --ranks 2 --edges 3000",
    "gnnloom generate made rmat --scale 6 --workers 0",
    "gnnloom calibrate --ranks 2",
    f"mpiexec -n 4 gnnloom run quick-start --cluster mpi {_SETTINGS}",
    "python -P -m gnnloom catalog ls",
    f"mpiexec -n 2 python -P -m mpi4py -m gnnloom.trainer web/by-hand --catalog catalog --ranks 2 {_TRAIN}",
)


def write_edges(folder: Path) -> None:
    """Write the graph of the journey: a ring of 40 vertices with chords."""
    lines = [f"{vertex} {(vertex + step) % 40}\n" for vertex in range(40) for step in (1, 7)]
    (folder / "edges.txt").write_text("".join(lines))


def travel(
    folder: Path,
    commands: Sequence[str] = JOURNEY,
    environment: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
) -> None:
    """Run commands in a folder, each of which must succeed without a traceback.

    Args:
        environment: additional variables.
        before: the begin of every command line.
    """
    path = os.pathsep.join([str(_GNNLOOM.parent), os.environ["PATH"]])
    for command in commands:
        done = subprocess.run(
            [*before, *shlex.split(command)],
            cwd=folder,
            env={**os.environ, "PATH": path, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stdout + done.stderr, f"{command}\n{done.stdout}{done.stderr}"
