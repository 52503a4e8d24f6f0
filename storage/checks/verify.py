"""Whether everything in a dataset is whole."""

from __future__ import annotations

from dataclasses import dataclass

from gnnloom.storage.catalog import ArtifactInfo, Dataset
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.checks.run_invariants import check_run
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.runs.run import Run


@dataclass(frozen=True)
class Finding:
    """How an artifact or run was found.

    Attributes:
        kind, key: of the artifact; ``runs`` and the name of a run.
        state: ``complete`` or ``incomplete``.
        read: arrays that are whole, or epochs of a run.
        problem: what is wrong; None if nothing is.
    """

    kind: str
    key: str
    state: str
    read: int
    problem: str | None

    @property
    def is_damaged(self) -> bool:
        """Something is wrong that finishing it would not mend."""
        return self.problem is not None and self.state == "complete"


def verify_dataset(dataset: Dataset, *, quick: bool = False) -> list[Finding]:
    """Read everything against checksums, digests and what must hold of it.

    Args:
        quick: digests only.
    """
    artifacts = [_verify_artifact(dataset, info, quick=quick) for info in dataset.artifacts()]
    return artifacts + [_verify_run(dataset, run) for run in dataset.runs()]


def _verify_artifact(dataset: Dataset, info: ArtifactInfo, *, quick: bool) -> Finding:
    arrays, problem = 0, None
    try:
        artifact = Artifact(info.path)
        arrays = artifact.verify()
        if not quick:
            check_artifact(dataset, artifact)
    except (GnnloomError, OSError) as error:
        problem = str(error)
    return Finding(info.kind, info.key, info.state, arrays, problem)


def _verify_run(dataset: Dataset, name: str) -> Finding:
    epochs, problem = 0, None
    try:
        epochs = check_run(Run.open(dataset, name))
    except (GnnloomError, OSError) as error:
        problem = str(error)
    # A run that is begun is whole as far as it is.
    return Finding("runs", name, "complete", epochs, problem)
