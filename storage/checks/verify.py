"""Checks that everything in a dataset is intact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gnnloom.storage.artifacts.artifact_info import ArtifactInfo
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.checks.copy_invariants import check_copy
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.checks.metadata_invariants import check_lists, check_metadata
from gnnloom.storage.checks.name_invariants import unknown_files
from gnnloom.storage.checks.run_invariants import check_run
from gnnloom.storage.errors import GnnloomError, IncompleteError, NotFoundError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.mapped_copy import copies
from gnnloom.storage.meters import ProgressMeter
from gnnloom.storage.runs.run import Run
from gnnloom.storage.system_errors import OF_ONE_FILE, check_is_of_content

_NOT_OURS: Final = "gnnloom did not write this file; remove it"
#: Kind of the findings about uncompressed copies.
MAPPED_KIND: Final = "mapped"


@dataclass(frozen=True)
class Finding:
    """The result of checking one artifact or run.

    Attributes:
        kind, key: kind and key of the artifact, ``runs`` and the name of the run, ``file`` and the path of a file that
            gnnloom did not write, or ``mapped`` and the folder of an
            uncompressed copy.
        state: ``complete`` or ``incomplete``.
        read: number of arrays of the artifact, or of epochs of the run, that were read and are intact.
        problem: what is wrong; None if nothing is.
    """

    kind: str
    key: str
    state: str
    read: int
    problem: str | None

    @property
    def is_damaged(self) -> bool:
        """Whether something is wrong that finishing it would not fix."""
        return self.problem is not None and self.state == "complete"


def verify_dataset(dataset: Dataset, *, quick: bool = False) -> list[Finding]:
    """Read everything, and check it against checksums, digests and invariants.

    Args:
        quick: check only metadata, checksums and digests.

    Returns:
        One finding per artifact, run and uncompressed copy, intact or not, and one per unknown file.
    """
    infos, runs_there, copies_there = dataset.artifacts(), dataset.runs(), copies(dataset.path)
    # Arrays are counted, because an artifact may have most of the bytes.
    meter = ProgressMeter("verify", sum(map(_num_arrays, infos)) + len(runs_there) + len(copies_there))
    looked_at = [_verify_artifact(dataset, info, meter, quick=quick) for info in infos]
    artifacts = [finding for finding in looked_at if finding is not None]
    runs, copied = list[Finding](), list[Finding]()
    for run in runs_there:
        runs.append(_verify_run(dataset, run))
        meter.advance()
    for path in copies_there:
        copied.append(_verify_copy(path))
        meter.advance()
    return artifacts + runs + copied + _verify_names(dataset, infos) + _verify_lists(dataset)


def _verify_names(dataset: Dataset, infos: Sequence[ArtifactInfo]) -> list[Finding]:
    """A finding for each file that gnnloom did not write and that is part of no artifact and no run."""
    return [
        Finding("file", file.relative_to(dataset.path).as_posix(), "complete", 0, f"{file}: {_NOT_OURS}")
        for file in unknown_files(dataset, infos)
    ]


def _verify_lists(dataset: Dataset) -> list[Finding]:
    damage, outdated = check_lists(dataset)
    # The lists belong to no artifact. They can be derived, so an outdated one is unfinished work rather than damage.
    found = [("complete", damage), ("incomplete", outdated)]
    return [Finding("list", "zarr.json", state, 0, problem) for state, problem in found if problem]


def _num_arrays(info: ArtifactInfo) -> int:
    """Number of arrays of an artifact; 0 if it cannot be opened, which its check reports."""
    try:
        return Artifact(info.path).num_listed
    except (GnnloomError, OSError):
        return 0


def _verify_artifact(dataset: Dataset, info: ArtifactInfo, meter: ProgressMeter, *, quick: bool) -> Finding | None:
    """Check an artifact; returns None if another process removes it during the check."""
    arrays, problem = 0, None
    try:
        artifact = Artifact(info.path)
        arrays = artifact.verify(meter.advance)
        check_metadata(artifact)
        if not quick:
            check_artifact(dataset, artifact)
    # One damaged artifact must not hide the findings of the others.
    except (GnnloomError, OSError) as error:
        check_is_of_content(error, info.path, OF_ONE_FILE)
        if not info.path.exists():
            return None
        problem = str(error)
    return Finding(info.kind, info.key, info.state, arrays, problem)


def _verify_copy(path: Path) -> Finding:
    arrays, state, problem = 0, "complete", None
    try:
        arrays = check_copy(path)
    # Nobody reads the copy until the artifact is made again, with the same bytes.
    except (IncompleteError, NotFoundError) as error:
        state, problem = "incomplete", f"{error}; remove {path}, an uncompressed copy of it"
    except (GnnloomError, OSError) as error:
        check_is_of_content(error, path, OF_ONE_FILE)
        problem = str(error)
    return Finding(MAPPED_KIND, path.name, state, arrays, problem)


def _verify_run(dataset: Dataset, name: str) -> Finding:
    epochs, state, problem = 0, "complete", None
    try:
        epochs = check_run(Run.open(dataset, name))
    # Only lists are unfinished: a run that did not end must be intact up to its last epoch.
    except IncompleteError as error:
        state, problem = "incomplete", str(error)
    except (GnnloomError, OSError) as error:
        check_is_of_content(error, dataset.run_path(name), OF_ONE_FILE)
        problem = str(error)
    return Finding("runs", name, state, epochs, problem)
