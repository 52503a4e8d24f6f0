"""Multiplies a matrix of the vertices by powers of the adjacency, and stores the products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from gnnloom.storage import Dataset as StoredDataset
from gnnloom.storage.artifacts.propagated import Propagated
from gnnloom.storage.option import Option, options_of, parse_memory
from gnnloom.trainer.config.propagate_config import PropagateConfig
from gnnloom.trainer.job.ranks import Ranks, ranks_of_job
from gnnloom.workflows.api.catalog import CatalogLike, DatasetLike, as_dataset
from gnnloom.workflows.api.options.keywords import check_known, plain_values, with_options

if TYPE_CHECKING:
    from gnnloom.workflows.api.options.option_types import PropagateKeywords


def propagate_options() -> dict[str, Option]:
    """The options of a propagation by name; the dataset is an argument."""
    return {name: each for name, each in options_of(PropagateConfig).items() if name not in ("catalog", "dataset")}


@with_options(propagate_options())
def propagate(dataset: DatasetLike, *, catalog: CatalogLike = None, **options: Unpack[PropagateKeywords]) -> Propagated:
    """Compute and store A X, A^2 X, ..., A^K X: A is the normalized adjacency, X the features.

    ``result.read(2)`` is A^2 X in the order of the dataset's vertices, and ``result.read(2, start, stop)`` some of its
    rows. With ``ppr``, only the last step of personalized PageRank is stored. The whole matrix of features is never in
    memory: ``memory``, in bytes per rank, decides how many columns a rank multiplies at once.

    The ranks are new processes of this machine. Inside an MPI job, the call is collective, like :func:`gnnloom.train`.
    If the steps are stored already, the call returns them.

    >>> result = gnnloom.propagate("web", steps=2, ranks=2)
    >>> result.read(2, 0, 10).shape
    (10, 8)

    Args:
        dataset: the dataset or its name.
        catalog: as for :func:`gnnloom.ingest`.
        options: as in ``gnnloom propagate --help``; ``memory`` is bytes, or text such as ``"3G"``.

    Returns:
        The stored steps.

    Raises:
        InputError: an option is unknown or has a wrong value, or the dataset has no such matrix.
        NotFoundError: the dataset or its row shards do not exist.
        BudgetError: the memory is too small.
        LaunchError: mpiexec is missing, or the ranks failed. ``StoppedError``, one of its kinds: the propagation was
            asked to stop, and the same call continues it.
        CollectiveError: inside an MPI job: any of these errors, raised on every rank.
    """
    found, given = as_dataset(dataset, catalog), plain_values(options)
    check_known("propagate", given, propagate_options())
    if isinstance(given.get("memory"), str):
        given["memory"] = parse_memory(given["memory"])
    with ranks_of_job("gnnloom propagate", trains=True) as ranks:
        result = ranks.propagate(settled_propagation(ranks, found, given))
    return found.propagated(result["key"])


def settled_propagation(ranks: Ranks, dataset: StoredDataset, given: Mapping[str, Any]) -> PropagateConfig:
    """The configuration of a propagation on these ranks. Collective on the ranks of a job."""

    def settle() -> PropagateConfig:
        number = ranks.number(given.get("ranks"))
        fields = dict(given) if number is None else {**given, "ranks": number}
        return PropagateConfig.of(catalog=str(dataset.path.parent), dataset=dataset.name, **fields)

    return ranks.agree(settle, PropagateConfig.to_json)
