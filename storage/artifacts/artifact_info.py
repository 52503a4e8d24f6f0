"""Describes artifacts by their parameters and inputs, and how several artifacts of one kind differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnloom.storage.differences import differences, in_words
from gnnloom.storage.disk.files import read_json, tree_bytes
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.artifact import MANIFEST, WORK
from gnnloom.storage.system_errors import OF_ONE_FILE, check_is_of_content

#: Parameters by which users recognize an artifact, in the order in which errors list them.
_KNOWN_BY = (
    "type",
    "relation",
    "layout",
    "parts",
    "method",
    "grid",
    "permutation",
    "ranks",
    "batch_size",
    "of",
    "steps",
    "values",
    "seed",
)


@dataclass(frozen=True)
class ArtifactInfo:
    """One artifact in a listing.

    Attributes:
        state: ``complete`` or ``incomplete``; a damaged artifact is in one of the two states as well.
        parameters: empty if they cannot be read; opening the artifact raises the reason.
        inputs: kind to key, or name to fingerprint, of what it was made from; empty if it cannot be read.
    """

    kind: str
    key: str
    state: str
    parameters: dict[str, Any]
    path: Path
    inputs: dict[str, str] = field(default_factory=dict)

    @property
    def is_typed(self) -> bool:
        """Whether it is a graph with types."""
        # A graph without the held-out edges of a relation has the name of this one.
        return self.kind == "graph" and not {"relations", "relation"}.isdisjoint(self.parameters)

    def stored_bytes(self) -> int:
        return tree_bytes(self.path)

    @classmethod
    def read(cls, kind: str, path: Path) -> ArtifactInfo:
        """Read what a listing shows of the artifact in a folder."""
        manifest = (path / MANIFEST, "complete")
        # A commit writes the manifest before it drops the plan, so if both were missing, the manifest exists by now.
        for source, state in (manifest, (path / WORK / "plan.json", "incomplete"), manifest):
            try:
                content = read_json(source)
            except FileNotFoundError:
                continue
            # A listing must not fail on one damaged file; opening the artifact reports the damage.
            except (CorruptError, OSError) as error:
                check_is_of_content(error, source, OF_ONE_FILE)
                content = {}
            parameters, inputs = (_object(content.get(name)) for name in ("parameters", "inputs"))
            return cls(kind, path.name, state, parameters, path, inputs)
        return cls(kind, path.name, "incomplete", {}, path)

    @property
    def described(self) -> str:
        """The key, and the parameters by which users recognize the artifact."""
        found = {name: self.parameters[name] for name in _KNOWN_BY if name in self.parameters}
        pairs = in_words(
            {name: "x".join(map(str, each)) if isinstance(each, list) else each for name, each in found.items()}
        )
        return f"{self.key} ({pairs})" if pairs else self.key


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def describe_candidates(infos: Sequence[ArtifactInfo]) -> str:
    """Several artifacts of one kind by their keys, with what distinguishes them.

    Graphs without held-out links are compared among themselves, because ingested graphs have other parameters.
    """
    words = {}
    for described in ("", "without held-out links"):
        group = [info for info in infos if (info.kind == "graph" and "graph" in info.inputs) == bool(described)]
        found = differences([{"parameters": info.parameters, "inputs": info.inputs} for info in group])
        for info, pairs in zip(group, found, strict=True):
            words[info.key] = ", ".join(filter(None, (described, in_words(pairs))))
    return "; ".join(f"{info.key} ({words[info.key]})" if words[info.key] else info.key for info in infos)
