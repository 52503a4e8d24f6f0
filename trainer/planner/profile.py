"""The profile of a machine: rates of its ranks' products and communication; measured or from published figures."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any, Final

from gnnloom.storage.catalog import check_name
from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.errors import CorruptError, InputError, NotFoundError

#: Version of the JSON.
VERSION = 1
#: Folder of the measured profiles in a catalog; datasets cannot have this name.
FOLDER = ".profiles"
#: Bytes of a number in the products that every profile has rates of, and in bfloat16.
MEASURED_BYTES, _BF16_BYTES = 4, 2

#: Name of the profile of this machine, the default for choices and forecasts.
LOCAL: Final = "local"
#: Name of the profile that comes with gnnloom for machines that were not measured.
GENERIC: Final = "generic"


@dataclass(frozen=True)
class Link:
    """A connection between ranks.

    Attributes:
        latency: seconds of a message without content.
        bandwidth: bytes per second in one direction.
    """

    latency: float
    bandwidth: float


@dataclass(frozen=True)
class RateTable:
    """A quantity measured on a lattice of positive numbers; between the points it is interpolated in their logarithms.

    Attributes:
        axes: coordinates of the points along each axis, ascending.
        values: at all points, the last axis varying fastest.
    """

    axes: tuple[tuple[float, ...], ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        ascending = all(list(axis) == sorted(set(axis)) for axis in self.axes)
        if math.prod(map(len, self.axes)) != len(self.values) or not ascending:
            raise InputError(f"table of {len(self.values)} values on axes {self.axes}: they do not match")

    def at(self, *point: float) -> float:
        """The value at a point; outside the lattice, the value at the nearest point."""
        sides = [_neighbors(axis, value) for axis, value in zip(self.axes, point, strict=True)]
        total = 0.0
        for corner in product(*sides):
            number, weight = 0, 1.0
            for (index, share), axis in zip(corner, self.axes, strict=True):
                number, weight = number * len(axis) + index, weight * share
            total += weight * self.values[number]
        return total


def _neighbors(axis: Sequence[float], value: float) -> list[tuple[int, float]]:
    """The points of an axis around a value, and their weights."""
    if value <= axis[0]:
        return [(0, 1.0)]
    if value >= axis[-1]:
        return [(len(axis) - 1, 1.0)]
    above = bisect_right(axis, value)
    share = math.log2(value / axis[above - 1]) / math.log2(axis[above] / axis[above - 1])
    return [(above - 1, 1 - share), (above, share)]


@dataclass(frozen=True)
class CollectiveRate:
    """A collective, measured in groups of ``group`` neighboring ranks, all groups at the same time.

    Attributes:
        latency: seconds of a call with little content.
        byte_seconds: seconds for each byte that a rank of a ring sends.
    """

    operation: str
    group: int
    latency: float
    byte_seconds: float


@dataclass(frozen=True)
class Rates:
    """Rates at which a rank multiplies numbers of one size.

    Attributes:
        spmm: seconds for a nonzero and column of the dense operand, by that operand's columns, the nonzeros per row,
            and the operand's rows.
        gemm: seconds for a multiplication with its addition, by the two shortest sides, or by the shortest side alone.
        passes: seconds of a pass over an array, relative to a pass over the same number of float32 values at the
            memory bandwidth.
        gradient: like ``gemm``, for products that sum over many rows: gradients of weights; None if these were not
            measured and take the time of others.
    """

    spmm: RateTable
    gemm: RateTable
    passes: float = 1.0
    gradient: RateTable | None = None


@dataclass(frozen=True, kw_only=True)
class MachineProfile:
    """The rates of a machine.

    Attributes:
        clock: ``wall`` or ``processor``: the measured clock.
        device: ``cpu`` or ``gpu``: the processor of a rank.
        ranks_per_node: ranks that share a node.
        memory_per_rank: bytes; 0 if unknown.
        intra: link between ranks of a node.
        inter: link between nodes, for each network card.
        cards: number of network cards of a node, which its ranks share.
        spmm, gemm, gradient, passes: rates of work in float32; see :class:`Rates`.
        bf16: rates of products in bfloat16 with float32 sums; None if they were not measured.
        stream: bytes per second that a rank reads or writes.
        call: minimum seconds of any operation.
        overlap: share of a communication that can be hidden behind a product.
        collectives: measured collectives; others follow from the links.
        spread: for each measured figure, the relative distance between the quartiles.
        sources: sources of published figures, and figures that are assumed.
    """

    name: str
    clock: str = "wall"
    device: str = "cpu"
    ranks_per_node: int
    memory_per_rank: int = 0
    intra: Link
    inter: Link
    cards: int = 1
    spmm: RateTable
    gemm: RateTable
    stream: float
    call: float
    overlap: float = 1.0
    gradient: RateTable | None = None
    passes: float = 1.0
    bf16: Rates | None = None
    collectives: tuple[CollectiveRate, ...] = ()
    spread: Mapping[str, float] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def note(self) -> str:
        """Note for readers of predicted times; empty if the times are from a measured machine."""
        if self.device == "gpu":
            return f"times are for the GPUs of {self.name}, for comparison: gnnloom itself computes on CPUs"
        if self.name == GENERIC:
            return "times are for some small machine: `gnnloom calibrate` measures this one"
        return ""

    def measured(self, operation: str, group: int) -> CollectiveRate | None:
        """The measured rate of a collective in groups of this size."""
        fitting = (rate for rate in self.collectives if (rate.operation, rate.group) == (operation, group))
        return next(fitting, None)

    def rates(self, number_size: int) -> tuple[Rates, float]:
        """The rates of products of numbers of some bytes, and a factor for their seconds.

        Sizes that were not measured are assumed to take time in proportion to their bytes, which bound the products.
        """
        if number_size == _BF16_BYTES and self.bf16 is not None:
            return self.bf16, 1.0
        # Passes over bfloat16 widen and narrow each number: unmeasured, they are as slow as over float32.
        factor = number_size / MEASURED_BYTES
        return Rates(self.spmm, self.gemm, self.passes / min(1.0, factor), self.gradient), factor

    def to_json(self) -> dict[str, Any]:
        return {"encoding-type": "gnnloom-machine-profile", "version": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any], where: str) -> MachineProfile:
        """Read a profile.

        Raises:
            InputError: the content is not a profile, or has another version.
        """
        given = dict(content)
        if given.pop("encoding-type", None) != "gnnloom-machine-profile":
            raise InputError(f"{where}: not a machine profile; `gnnloom calibrate` makes one")
        version = given.pop("version", None)
        if version != VERSION:
            raise InputError(
                f"{where}: a machine profile of version {version!r}, expected {VERSION}; `gnnloom calibrate` makes it"
                " again"
            )
        try:
            given["intra"], given["inter"] = Link(**given["intra"]), Link(**given["inter"])
            given["spmm"], given["gemm"] = _table(given["spmm"]), _table(given["gemm"])
            given["gradient"] = _known_table(given.get("gradient"))
            if given.get("bf16") is not None:
                narrow = given["bf16"]
                gradient = _known_table(narrow.get("gradient"))
                given["bf16"] = Rates(
                    _table(narrow["spmm"]), _table(narrow["gemm"]), narrow.get("passes", 1.0), gradient
                )
            given["collectives"] = tuple(CollectiveRate(**rate) for rate in given.get("collectives", ()))
            return cls(**given)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{where}: not a complete machine profile ({error})") from error


def _table(content: Mapping[str, Any]) -> RateTable:
    return RateTable(tuple(map(tuple, content["axes"])), tuple(content["values"]))


def _known_table(content: Mapping[str, Any] | None) -> RateTable | None:
    return None if content is None else _table(content)


def published_profiles() -> list[str]:
    """Names of the profiles that come with gnnloom."""
    folder = resources.files("gnnloom.trainer.planner") / "machines"
    return sorted(file.name.removesuffix(".json") for file in folder.iterdir() if file.name.endswith(".json"))


def profile_path(root: Path, name: str) -> Path:
    """Path of a measured profile in a catalog."""
    return root / FOLDER / f"{check_name(name, 'profile')}.json"


def store_profile(root: Path, profile: MachineProfile) -> Path:
    """Write a profile into a catalog; one of the same name is replaced."""
    path = profile_path(root, profile.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, profile.to_json())
    return path


def open_profile(root: Path, name: str) -> MachineProfile:
    """A profile of a catalog, a profile that comes with gnnloom, or a JSON file, in this order.

    If nothing was measured, ``local`` is ``generic``, and the note of the profile says so.

    Raises:
        NotFoundError: there is no such profile.
        InputError: the file is not a profile.
    """
    is_file = name.endswith(".json")
    path = Path(name) if is_file else profile_path(root, name)
    if path.exists():
        try:
            return MachineProfile.from_json(read_json(path), str(path))
        except CorruptError as error:
            raise InputError(f"{path}: not a machine profile ({error})") from error
    if name == LOCAL:
        name = GENERIC
    if not is_file and name in published_profiles():
        file = resources.files("gnnloom.trainer.planner") / "machines" / f"{name}.json"
        return MachineProfile.from_json(json.loads(file.read_text()), name)
    stored = sorted(each.stem for each in (root / FOLDER).glob("*.json"))
    there = ", ".join([*stored, *published_profiles()])
    raise NotFoundError(
        f"there is no machine profile {name}; there are: {there}. `gnnloom calibrate` measures this machine"
    )
