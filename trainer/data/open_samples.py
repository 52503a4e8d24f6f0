"""Opens samples on disk, and checks that they fit a run."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from gnnloom.storage.artifacts.samples import Samples
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.format.artifact import Artifact


class SampleRequest(Protocol):
    """The fields of a configuration that choose samples; those of the batches may have their defaults."""

    @property
    def samples(self) -> str | None: ...

    @property
    def fanout(self) -> tuple[int, ...]: ...

    @property
    def batch_size(self) -> int: ...

    @property
    def replace(self) -> bool: ...

    @property
    def hidden(self) -> tuple[int, ...]: ...


#: Values that stand for those of the samples.
_DEFAULTS: Final[Mapping[str, object]] = MappingProxyType({"fanout": (), "batch_size": 1024, "replace": False})


def open_samples(
    dataset: Dataset, request: SampleRequest, shards: Artifact, num_ranks: int, counter: ReadCounter
) -> Samples:
    """Open the samples with the requested key.

    Args:
        shards: the row shards of the run.

    Raises:
        NotFoundError: there are none with this key.
        InputError: they are for other ranks, of other data or another model, or drawn with other options.
    """
    samples = dataset.samples(request.samples, counter)
    where = samples.artifact.path
    if samples.num_ranks != num_ranks:
        raise InputError(f"{where}: samples for {samples.num_ranks} ranks, but the run has {num_ranks}")
    # One rank owns all vertices, so its samples are made without a partition.
    for kind, key in samples.artifact.inputs.items():
        if shards.inputs.get(kind) != key:
            raise InputError(
                f"{where}: made from {kind} {key}, but the shards {shards.key} from {shards.inputs.get(kind)}"
            )
    num_layers = len(request.hidden) + 1
    if samples.num_layers != num_layers:
        raise InputError(
            f"{where}: fan-outs {samples.fanouts} of {samples.num_layers} layers, but the model has {num_layers} layers"
        )
    drawn = {"fanout": samples.fanouts, "batch_size": samples.batch_size, "replace": samples.replace}
    for name, value in drawn.items():
        given = getattr(request, name)
        if given not in (value, _DEFAULTS[name]):
            raise InputError(f"{where}: drawn with {name} {value}, but {given} was asked for")
    return samples
