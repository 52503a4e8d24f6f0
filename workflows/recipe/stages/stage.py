"""The interface of a recipe's stages, and the objects that they take and return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import BASE_MEMORY
from gnnloom.pipeline.tasks.phase import Phase, PhaseCount, count, temporary_bytes
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.job.ranks import Ranks
from gnnloom.workflows.recipe.found import RecipeFacts

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs

Options = TypeVar("Options")


@dataclass(frozen=True)
class Stage:
    """A stage that a recipe has.

    Attributes:
        options: options of the stage in the recipe.
        key: key of the artifact, or name of the run, that it makes.
    """

    kind: RecipeStage[Any]
    options: Any
    key: str
    is_done: bool

    @property
    def name(self) -> str:
        return self.kind.name


@dataclass(frozen=True)
class Display:
    """Shows progress while a block runs.

    Attributes:
        phases: entered by the process that runs the stages before training.
        epochs: entered by the first rank, with the run and its number of epochs.
    """

    phases: Callable[[], AbstractContextManager[None]] = nullcontext
    epochs: Callable[[Run, int], AbstractContextManager[None]] = lambda run, epochs: nullcontext()  # noqa: ARG005


@dataclass(frozen=True)
class RankCount:
    """The rank with most bytes; for messages, the average rank.

    Attributes:
        bytes_read: of shards, before the first epoch.
        bytes_held: at the peak.
        metadata: bytes of manifests that it parses.
        messages, bytes_sent: per epoch; None if the planner does not know them, as for modes that sample.
    """

    ranks: int
    bytes_read: int
    bytes_held: int
    metadata: int
    messages: float | None
    bytes_sent: float | None


@dataclass(frozen=True, kw_only=True)
class StageNeeds:
    """Needs of a stage; None where they are not known before an earlier stage is done.

    Attributes:
        memory: bytes of the largest process.
        disk: bytes of the artifact or run.
        scratch: bytes of temporary files.
        seconds: processor seconds of all processes.
        note: assumptions of the figures.
        phases: work of the tasks of each phase, if the stage counts it.
        rank: work of a rank, if the stage trains.
    """

    memory: int | None = None
    disk: int | None = None
    scratch: int | None = None
    seconds: float | None = None
    note: str = ""
    phases: tuple[PhaseCount, ...] = ()
    rank: RankCount | None = None

    @classmethod
    def of_plan(cls, planned: Sequence[Phase], note: str) -> StageNeeds:
        """Needs of a stage that runs the given phases."""
        phases = tuple(count(planned))
        return cls(
            memory=BASE_MEMORY + max(phase.most_memory for phase in phases),
            disk=array_bytes(planned),
            scratch=temporary_bytes(planned),
            note=note,
            phases=phases,
        )


def array_bytes(planned: Iterable[Phase]) -> int:
    """Bytes that the phases write to arrays, uncompressed."""
    return sum(task.needs.writes for phase in planned if phase.makes_arrays for task in phase.tasks)


@dataclass(frozen=True)
class Projection:
    """A stage and its needs."""

    stage: Stage
    needs: StageNeeds = StageNeeds()

    def to_json(self) -> dict[str, Any]:
        stage = self.stage
        return {"stage": stage.name, "key": stage.key, "done": stage.is_done, **asdict(self.needs)}


class RecipeStage(ABC, Generic[Options]):
    """A stage that a recipe may have, and the type of its options in a recipe.

    Attributes:
        given_by: attribute of the recipe with the options of the stage, unless the stage finds them itself.
        makes_artifact: the stage makes an artifact, rather than a part of a run.
    """

    given_by: ClassVar[str]
    makes_artifact: ClassVar[bool] = True

    def __init__(self, name: str) -> None:
        self.name = name

    def options(self, found: RecipeFacts) -> Options | None:
        """The options that the recipe has for the stage; None if the recipe has no such stage.

        Raises:
            InputError, NotFoundError: the file of a source does not exist, or has unexpected contents.
        """
        options: Options | None = getattr(found.recipe, self.given_by)
        return options

    @abstractmethod
    def key(self, found: RecipeFacts, options: Options) -> str:
        """Key of the artifact, or name of the run, that the stage makes; raises as :meth:`options`."""

    def is_done(self, found: RecipeFacts, options: Options, key: str) -> bool:
        """Whether the artifact or run of the stage exists."""
        return found.has(self.name, key)

    @abstractmethod
    def needs(self, inputs: StageInputs, options: Options) -> StageNeeds:
        """Needs of the stage."""


class Prepares(RecipeStage[Options]):
    """A stage whose tasks run on a cluster, before the ranks begin."""

    @abstractmethod
    def prepare(self, found: RecipeFacts, options: Options, dataset: Dataset, cluster: Cluster) -> None:
        """Run the stage; earlier stages may only just have stored its inputs.

        Args:
            found: with the keys of all stages.
        """


class OnRanks(RecipeStage[Options]):
    """A stage that the ranks run."""

    @abstractmethod
    def run(self, found: RecipeFacts, options: Options, ranks: Ranks, display: Display) -> None:
        """Run the stage. Collective.

        Args:
            found: with the keys of all stages.
        """
