"""Forecasts training runs, measures this machine, and checks the installation."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from csv import DictWriter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from gnnloom.storage.catalog import check_name
from gnnloom.storage.disk.files import written_aside
from gnnloom.storage.disk.own_folder import own_folder
from gnnloom.storage.errors import InputError, needing
from gnnloom.storage.wording import counted
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.leftovers import find_leftovers, remove_leftovers
from gnnloom.trainer.job.ranks import Ranks, ranks_of_job
from gnnloom.trainer.planner.profile import LOCAL, MachineProfile, open_profile, store_profile
from gnnloom.workflows.api.catalog import CatalogLike, DatasetLike, as_catalog, as_dataset
from gnnloom.workflows.api.options.keywords import ArtifactLike, check_known, key_of, with_options
from gnnloom.workflows.api.options.plan_options import SIZE_OPTIONS, plan_options, planned
from gnnloom.workflows.api.options.python_messages import speaking_python
from gnnloom.workflows.api.options.train_options import training_fields
from gnnloom.workflows.doctor.finding import OK, Verdict
from gnnloom.workflows.doctor.installation import examine
from gnnloom.workflows.formatting import readable_bytes

if TYPE_CHECKING:
    import pandas as pd

    from gnnloom.trainer.planner.candidates import Plan, Situation
    from gnnloom.trainer.planner.simulate import Crossing
    from gnnloom.workflows.api.options.option_types import PlanKeywords
    from gnnloom.workflows.doctor.tiny_example import ExampleStep

#: Maximum count of numbers of ranks in one simulation, and largest number: each one tries all grids of all algorithms.
MOST_POINTS: Final = 64
MOST_RANKS: Final = 1 << 17
#: Maximum number of ranks that may share a core while they measure.
_RANKS_PER_CORE: Final = 4

_in_python = partial(speaking_python, options={})


@with_options(plan_options())
def plan(
    dataset: DatasetLike,
    *,
    ranks: int = 2,
    memory_per_rank: int | None = None,
    profile: str = LOCAL,
    graph: ArtifactLike | None = None,
    catalog: CatalogLike = None,
    **options: Unpack[PlanKeywords],
) -> list[dict[str, Any]]:
    """Predict an epoch for every algorithm and process grid, best first; nothing is trained.

    Args:
        dataset: the dataset or its name.
        ranks: number of MPI ranks.
        memory_per_rank: memory limit per rank, in bytes; by default the limit in the profile.
        profile: profile of the machine: one that ``gnnloom calibrate`` stored, ``summit``, ``perlmutter``,
            ``frontier``, ``generic``, or a JSON file.
        graph: the graph or its key, to choose between several.
        catalog: where to look for the name; as for :func:`gnnloom.train`.
        options: the model and the task, as in ``gnnloom plan --help``. Without ``precision``, both float32 and bf16 are
            planned.

    Returns:
        The list ``plans`` of ``gnnloom plan --json``; ``pandas.DataFrame`` converts it to a table.

    Raises:
        InputError: an option is unknown or has a wrong value.
        NotFoundError: there is no such dataset, graph or profile.
    """
    found = as_dataset(dataset, catalog)
    check_known("plan", options, plan_options())
    fields = {"catalog": str(found.path.parent), "dataset": found.name, "ranks": ranks, **training_fields(options)}
    is_open = "precision" not in options
    config = TrainConfig.of(**fields)
    return [
        each.to_json() for each in planned(config, key_of(graph), profile, memory_per_rank or 0, is_open=is_open)[1]
    ]


@dataclass(frozen=True)
class Scaling:
    """The forecast of every algorithm for ascending numbers of ranks.

    Attributes:
        machine: the profile that the times come from.
        plans: the best process grid of each algorithm, by number of ranks.
        crossings: numbers of ranks at which the fastest algorithm changes.
        notes: notes on figures that are not exact.
        pages: paths of the written page and pictures.
    """

    machine: MachineProfile
    plans: tuple[Plan, ...]
    crossings: tuple[Crossing, ...]
    notes: tuple[str, ...]
    pages: tuple[Path, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object that ``gnnloom simulate --json`` prints."""
        return {
            "profile": self.machine.name,
            "plans": [each.to_json() for each in self.plans],
            "crossings": [vars(each) for each in self.crossings],
            "notes": [*self.notes],
            "pages": [str(file) for file in self.pages],
        }

    def rows(self) -> list[dict[str, Any]]:
        """A row for each plan, with the columns of ``gnnloom simulate --csv``."""
        plans = [each.to_json() for each in self.plans]
        single = [{name: value for name, value in row.items() if not isinstance(value, dict)} for row in plans]
        return [{**row, "grid": "x".join(map(str, row["grid"]))} for row in single]

    def frame(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        from gnnloom.workflows.interop.tables import pandas

        frame: pd.DataFrame = pandas().DataFrame(self.rows())
        return frame


@with_options(plan_options())
def simulate(
    dataset: DatasetLike | None = None,
    *,
    ranks: Sequence[int] = (4, 16, 64, 256, 1024, 4096),
    weak: bool = False,
    vertices: int | None = None,
    edges: int | None = None,
    features: int = 128,
    classes: int = 32,
    training_share: float = 0.5,
    memory_per_rank: int | None = None,
    profile: str = LOCAL,
    graph: ArtifactLike | None = None,
    csv: Path | str | None = None,
    out: Path | str | None = None,
    catalog: CatalogLike = None,
    **options: Unpack[PlanKeywords],
) -> Scaling:
    """Predict how training scales with the number of ranks; nothing is trained.

    Args:
        dataset: the dataset or its name; alternatively, give the sizes of a graph that is not stored:
        vertices: its vertices.
        edges: number of nonzeros: both directions of every edge, and self loops.
        features, classes: number of features, and of classes.
        training_share: fraction of the vertices that are training vertices with a label.
        ranks: ascending numbers of ranks.
        weak: let the graph grow with the ranks.
        memory_per_rank, profile, graph, catalog: as for :func:`plan`.
        csv: file to write all figures to.
        out: folder to write a page with the curves into.
        options: the model and the task, as in ``gnnloom simulate --help``.

    Returns:
        The forecasts; ``frame()`` has a row for each forecast.

    Raises:
        InputError: an option is unknown or has a wrong value; or the call gives both a dataset and sizes, or neither.
        NotFoundError: there is no such dataset, graph or profile.
        MissingPackageError: a page is to be written, and Matplotlib is not installed.
    """
    from gnnloom.trainer.planner.simulate import crossings
    from gnnloom.trainer.planner.simulate import simulate as simulate_on

    check_known("simulate", options, plan_options())
    check_rank_list(ranks)
    found = None if dataset is None else as_dataset(dataset, catalog)
    root = as_catalog(catalog).root if found is None else found.path.parent
    title = "a graph" if found is None else found.name
    config = TrainConfig.of(
        catalog=str(root), dataset="numbers" if found is None else found.name, **training_fields(options)
    )
    values = (vertices, edges, features, classes, training_share)
    sizes = {option.name: option.check(value) for option, value in zip(SIZE_OPTIONS, values, strict=True)}
    situation = _situation(found, sizes, key_of(graph), config)
    machine = open_profile(root, profile)
    plans = simulate_on(config, situation, machine, ranks, memory_per_rank or 0, weak=weak)
    changes = crossings(plans)
    # Figures that are not exact.
    estimated = {f"{plan.config.algorithm.name}: {plan.estimated}" for plan in plans if plan.estimated}
    notes = [*filter(None, [machine.note]), *sorted(estimated)]
    if situation.law.error is not None:
        notes.append(f"the partitions are within {situation.law.error:.1%} of the law")
    result = Scaling(machine, tuple(plans), tuple(changes), tuple(notes))
    if csv is not None:
        rows = result.rows()
        with written_aside(Path(csv)) as aside, aside.open("w", newline="", encoding="utf-8") as stream:
            writer = DictWriter(stream, [*rows[0]])
            writer.writeheader()
            writer.writerows(rows)
    if out is None:
        return result
    # Matplotlib is optional: it comes with the extra `report`.
    with needing("a page", "gnnloom[report]"):
        from gnnloom.workflows.report.scaling import write_scaling
    pages = write_scaling(f"Scaling of {title} on {machine.name}", notes, plans, changes, Path(out))
    return replace(result, pages=tuple(pages))


def check_rank_list(ranks: Sequence[int]) -> None:
    """Check numbers of ranks to simulate.

    Raises:
        InputError: the numbers do not ascend, or are too many or too large.
    """
    found = [*ranks]
    if not found or found != sorted(set(found)) or found[0] < 1 or found[-1] > MOST_RANKS or len(found) > MOST_POINTS:
        raise InputError(
            f"ranks: expected at most {MOST_POINTS} ascending numbers from 1 to {MOST_RANKS:,}, found {found}"
        )


def is_one_graph(dataset: object, vertices: int | None, edges: int | None) -> bool:
    """Whether the call gives either a dataset or all sizes of a graph."""
    if dataset is not None:
        return vertices is None and edges is None
    return vertices is not None and edges is not None


def _situation(
    dataset: DatasetLike | None, sizes: Mapping[str, Any], graph: str | None, config: TrainConfig
) -> Situation:
    """The graph to simulate.

    Args:
        sizes: sizes of a graph that is not stored.
        graph: key of the graph of the dataset.

    Raises:
        InputError: the call gives both a dataset and sizes, or neither.
    """
    from gnnloom.trainer.planner.candidates import Situation
    from gnnloom.trainer.planner.describe import GraphFacts
    from gnnloom.trainer.planner.pair_steps import PairFacts
    from gnnloom.trainer.planner.stored import situation_of

    n, nnz = sizes["vertices"], sizes["edges"]
    if not is_one_graph(dataset, n, nnz):
        raise InputError("give a dataset, or the numbers of vertices and edges of a graph (--vertices and --edges)")
    if dataset is not None:
        return situation_of(as_dataset(dataset), graph, config=config)
    # Its edges are counted in both directions.
    pairs = PairFacts.of(config, max(1, (nnz - n) // 2)) if config.task.on_pairs else None
    facts = GraphFacts(
        num_vertices=n,
        nnz=nnz,
        num_features=sizes["features"],
        num_outputs=config.task.output_dim if config.task.on_pairs else sizes["classes"],
        num_training=pairs.step_pairs if pairs is not None else max(1, round(n * sizes["training_share"])),
        one_class=pairs is None,
        pairs=pairs,
    )
    return Situation(facts)


@_in_python
def calibrate(
    *,
    ranks: int = 2,
    threads: int = 1,
    name: str = LOCAL,
    clock: Literal["wall", "processor"] = "wall",
    catalog: CatalogLike = None,
) -> MachineProfile:
    """Measure products, memory and communication, and store them in the catalog as a profile of this machine.

    Takes one to two minutes. Inside an MPI job, the call is collective, and the ranks of the job measure; use as many
    ranks per node as the training run will use.

    Args:
        ranks: number of ranks to start here.
        threads: threads of each rank.
        name: name of the profile in the catalog; a profile of this name is replaced.
        clock: clock to use; measure processor time if other programs use the machine too.
        catalog: the catalog or its directory; by default ``$GNNLOOM_CATALOG``, or else ``./catalog``.

    Returns:
        The profile, which :func:`plan` and :func:`simulate` read by its name.

    Raises:
        InputError: the name or a number is wrong, or the ranks are too many for the cores of this machine.
        LaunchError: mpiexec is missing, or the ranks failed.
        CollectiveError: inside an MPI job: any of these errors, raised on every rank.
    """
    with ranks_of_job("gnnloom calibrate") as here:
        return measured_profile(here, as_catalog(catalog).root, name, ranks, threads, clock)[0]


def measured_profile(
    here: Ranks, root: Path, name: str, ranks: int, threads: int, clock: str, scale: float = 1.0
) -> tuple[MachineProfile, Path]:
    """Measure and store a profile; returns it and its file. Collective on a job's ranks.

    Args:
        root: directory of the catalog.
        scale: factor of the sizes of the matrices to multiply.

    Raises:
        InputError, LaunchError: as :func:`calibrate`.
    """
    from gnnloom.trainer.job.launch import launch_program

    check_name(name, "profile")
    if here.comm is None:
        _check_cores(ranks)
        arguments = [name, "--clock", clock, "--threads", str(threads), "--scale", str(scale)]
        content = launch_program("gnnloom.trainer.planner", arguments, ranks, threads)
        profile = MachineProfile.from_json(content, "this machine")
    else:
        from gnnloom.trainer.planner.calibrate import calibrate as measure

        profile = measure(here.comm, name, clock, threads, scale)
    return profile, Path(here.on_first(lambda: str(store_profile(root, profile))))


def _check_cores(ranks: int) -> None:
    """Refuse more ranks than the cores can run at the same time; a measurement would take very long and be wrong.

    Raises:
        InputError: there are too many ranks for the cores.
    """
    cores = len(os.sched_getaffinity(0))
    if not 1 <= ranks <= _RANKS_PER_CORE * cores:
        raise InputError(
            f"--ranks {ranks}: too many for {counted(cores, 'core')}, because ranks would wait for a core while they"
            f" measure; start at most {_RANKS_PER_CORE * cores}, or measure in an MPI job on several machines"
        )


@_in_python
def doctor(
    *, warm: bool = False, wide: bool = False, clean: bool = False, catalog: CatalogLike = None
) -> list[Verdict]:
    """Check this machine and the installation: Python, MPI, kernels, partitioners, memory, disk.

    Args:
        warm: instead of checking, compile all kernels into the cache, so that later calls start faster.
        wide: with ``warm``, compile them for graphs of more than 2^31 vertices, too.
        clean: instead of checking, remove files that your killed processes left and that no process uses: shared
            memory, semaphores and temporary folders.
        catalog: the catalog or its directory, whose disk is checked.

    Returns:
        A verdict for each check, with its ``state`` (``ok``, ``warning`` or ``failed``), the finding, and the remedy;
        with ``clean``, a verdict for each removed path.

    Raises:
        InputError: ``wide`` is given without ``warm``.
    """
    if wide and not warm:
        raise InputError("--wide: only with --warm")
    if clean:
        left = find_leftovers()
        remove_leftovers(left)
        return [Verdict("left by killed processes", OK, f"{each.path}, {readable_bytes(each.bytes)}") for each in left]
    if warm:
        from gnnloom.workflows.doctor.warm import warm_kernels

        return [*warm_kernels(wide=wide)]
    return [*examine(as_catalog(catalog).root)]


@_in_python
def check(*, ranks: int = 2) -> list[ExampleStep]:
    """Generate a graph, partition, shard, train on one rank and on several, compare the losses, verify, clean up.

    Args:
        ranks: number of MPI ranks, from 2 to 64.

    Returns:
        The steps, with their results and seconds.

    Raises:
        InputError: ``ranks`` is out of range.
        CorruptError: the losses differ.
        GnnloomError: a step failed.
    """
    from gnnloom.workflows.doctor.tiny_example import run_tiny_example

    if not 2 <= ranks <= 64:
        raise InputError(f"ranks: expected a number from 2 to 64, found {ranks}")
    steps, before = [], time.perf_counter()
    with own_folder("gnnloom-check-") as folder:
        for step in run_tiny_example(Path(folder, "catalog"), ranks):
            now = time.perf_counter()
            steps.append(replace(step, seconds=round(now - before, 3)))
            before = now
    return steps
