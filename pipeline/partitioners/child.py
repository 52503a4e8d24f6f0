"""Runs one native partitioner: ``python -m gnnloom.pipeline.partitioners.child METHOD FOLDER``.

FOLDER holds the request and the hypergraph; the result appears there under its name only when it is
whole, because native code may end this process at any moment, with any exit status.
"""

from __future__ import annotations

import ctypes
import importlib
import signal
import sys
from pathlib import Path

import numpy as np

from gnnloom.pipeline.partitioners.request import HYPERGRAPH, RESULT, PartitionRequest

#: Method to the module that knows it; imported late, because KaHyPar is optional.
METHODS = {
    "kahypar": "gnnloom.pipeline.partitioners.recursive_kahypar",
    "mtkahypar": "gnnloom.pipeline.partitioners.mt_kahypar",
}


def main(method: str, folder: Path) -> None:
    """Partition what lies in ``folder`` and leave the result there."""
    _die_with_parent()
    partitioner = importlib.import_module(METHODS[method])
    part = partitioner.partition(PartitionRequest.read(folder), folder / HYPERGRAPH)
    unfinished = folder / f"unfinished-{RESULT}"
    np.save(unfinished, part, allow_pickle=False)
    unfinished.replace(folder / RESULT)


def _die_with_parent() -> None:
    """Ask Linux to end this process when its parent ends, however that happens."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
