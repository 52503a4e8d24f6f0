"""A request to run a recipe, and the checks that come before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gnnloom.pipeline.cluster.open_cluster import check_report
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import counted
from gnnloom.trainer.comm.transports.registry import chosen_transport
from gnnloom.trainer.job.ranks import Ranks
from gnnloom.workflows.recipe.read import read_recipe
from gnnloom.workflows.recipe.stages.all_stages import RecipeStages, find_stages
from gnnloom.workflows.recipe.stages.vertices import check_trainable


@dataclass(frozen=True)
class RecipeRequest:
    """A user's request to run a recipe.

    Attributes:
        recipe: a file, or the name of a recipe that comes with gnnloom.
        catalog: folder of the datasets, unless the recipe names one.
        settings: ``section.key=value`` each; they override the file.
        cluster: ``local``, ``mpi``, a scheduler's address, or a scheduler file.
        first, last: first and last stage to run.
        performance_report: HTML file for Dask's report, if one is wanted.
        restart: start the training run over instead of continuing it; earlier stages are kept.
    """

    recipe: Path
    catalog: Path
    settings: tuple[str, ...] = ()
    cluster: str = "local"
    first: str | None = None
    last: str | None = None
    performance_report: Path | None = None
    restart: bool = False

    def check(self, ranks: Ranks | None = None) -> RecipeStages:
        """Read the recipe, find its stages, and check everything that can be known before anything runs.

        Args:
            ranks: the ranks for training; None if the recipe will not run.

        Raises:
            InputError, NotFoundError: the recipe, or a source that it names, cannot be used, there is no training run
                to start over, or the job has another number of ranks.
            LaunchError: ranks cannot be started here.
            ExistsError: the run's name in the recipe belongs to another training run, and ``restart`` is not given.
            IncompleteError: a stage before ``first`` is not done.
        """
        recipe = read_recipe(self.recipe, self.catalog, self.settings)
        cluster = recipe.cluster.options(self.cluster, self.performance_report)
        if cluster.performance_report is not None and cluster.workers == 0:
            raise InputError(
                f"{recipe.source_name}: [cluster] workers = 0, but --performance-report needs worker processes; set"
                " workers to 1 or more"
            )
        check_report(cluster.performance_report, cluster.workers)
        known = find_stages(recipe, cluster, restart=self.restart)
        if recipe.train is not None and not self.restart:
            known.found.refuse_other_run()
        # A recipe that makes only a graph needs no vertex data.
        if self.last != "graph" and not recipe.relations:
            check_trainable(known.found)
        asked = known.within(self.first, self.last)
        names = [stage.name for stage in asked.stages]
        if self.restart and "train" not in names:
            raise InputError(f"a restart starts the training over, but the stages to run are {', '.join(names)}")
        # Any number of ranks can prepare.
        if ranks is not None and asked.needs_ranks:
            wanted, comm = recipe.num_ranks, ranks.comm
            if comm is None:
                # Find a missing launcher now rather than after hours of preparation.
                chosen_transport().launcher(wanted)
            # These ranks become the trainer's ranks, whose number is fixed.
            elif wanted != comm.size:
                section, key = ("partition", "parts") if recipe.train is None else ("train", "ranks")
                raise InputError(
                    f"{recipe.source_name}: [{section}] {key} = {wanted}, but this MPI job has {comm.size}: start"
                    f" {counted(wanted, 'rank')}, or use --set {section}.{key}={comm.size}, or prepare only with"
                    " --until shards"
                )
        return asked
