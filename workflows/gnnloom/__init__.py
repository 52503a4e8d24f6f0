"""Train graph neural networks on graphs too large for one machine's memory.

    import gnnloom

    cora = gnnloom.ingest("cora", "dataset/cora", undirected=True)
    gnnloom.partition(cora, parts=2)
    gnnloom.shard(cora, parts=2)
    run = gnnloom.train(cora, ranks=2, hidden=16, epochs=200)
    gnnloom.predict(run)

Each function does what the command of the same name does, with the same options. It returns an object for its result: a
    :class:`Dataset`, a partition, shards or a :class:`Run`. Results are stored in a catalog, and if the result of a
    call is already stored, the call returns it.

Importing this package is fast; every name is loaded on its first use.
"""

import sys

# `python -m gnnloom` puts the current folder first on the path, so its files would replace modules of the same name.
# This package is imported before its modules: the rest of the command line then begins with "-m" or the module's name.
# No other import may come earlier, not even `__future__`.
if (
    not sys.flags.safe_path
    and "".join(sys.orig_argv[-len(sys.argv) :][:1]).removeprefix("-m").split(".")[0] == "gnnloom"
):
    del sys.path[0]

import os
from typing import TYPE_CHECKING, Any

from gnnloom.storage.kernel_cache import choose_kernel_cache

if TYPE_CHECKING:
    from gnnloom.storage.errors import GnnloomError
    from gnnloom.trainer.loader.loader import Loader
    from gnnloom.workflows.api.catalog import Catalog, Dataset, Run
    from gnnloom.workflows.api.export import export, report
    from gnnloom.workflows.api.features import features
    from gnnloom.workflows.api.ingest import generate, ingest
    from gnnloom.workflows.api.links import draw_hard_negatives, draw_links, read_links, read_ogb_links
    from gnnloom.workflows.api.loader import loader
    from gnnloom.workflows.api.look import look
    from gnnloom.workflows.api.machine import calibrate, check, doctor, plan, simulate
    from gnnloom.workflows.api.partition import partition, shard
    from gnnloom.workflows.api.propagate import propagate
    from gnnloom.workflows.api.recipe import run
    from gnnloom.workflows.api.sample import sample
    from gnnloom.workflows.api.train import predict, train
    from gnnloom.workflows.interop.progress_bars import progress

    __version__: str

__all__ = [
    "Catalog",
    "Dataset",
    "GnnloomError",
    "Loader",
    "Run",
    "__version__",
    "calibrate",
    "check",
    "doctor",
    "draw_hard_negatives",
    "draw_links",
    "export",
    "features",
    "generate",
    "ingest",
    "loader",
    "look",
    "partition",
    "plan",
    "predict",
    "progress",
    "propagate",
    "read_links",
    "read_ogb_links",
    "report",
    "run",
    "sample",
    "shard",
    "simulate",
    "train",
]

choose_kernel_cache(os.environ)

_API = "gnnloom.workflows.api"
_MODULES = {
    "gnnloom.storage.errors": ["GnnloomError"],
    "gnnloom.trainer.loader.loader": ["Loader"],
    "gnnloom.workflows.interop.progress_bars": ["progress"],
    f"{_API}.catalog": ["Catalog", "Dataset", "Run"],
    f"{_API}.export": ["export", "report"],
    f"{_API}.features": ["features"],
    f"{_API}.ingest": ["generate", "ingest"],
    f"{_API}.links": ["draw_hard_negatives", "draw_links", "read_links", "read_ogb_links"],
    f"{_API}.loader": ["loader"],
    f"{_API}.look": ["look"],
    f"{_API}.machine": ["calibrate", "check", "doctor", "plan", "simulate"],
    f"{_API}.partition": ["partition", "shard"],
    f"{_API}.propagate": ["propagate"],
    f"{_API}.recipe": ["run"],
    f"{_API}.sample": ["sample"],
    f"{_API}.train": ["predict", "train"],
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

# Type checkers see the imports above. They would assume that a module with this function has every name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Load a name on its first use."""
        found = _load(name)
        # The next use finds the value directly.
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)


def _load(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("gnnloom")
    if name not in _HOMES:
        raise AttributeError(f"module 'gnnloom' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
