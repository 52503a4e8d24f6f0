"""Runs a recipe on this machine: prepares on a cluster that this process opens, and trains on new MPI ranks."""

from __future__ import annotations

from gnnloom.pipeline.cluster.open_cluster import open_cluster
from gnnloom.storage.catalog import Catalog
from gnnloom.trainer.job.launch import launch, launch_prediction
from gnnloom.workflows.recipe.request import Assignment
from gnnloom.workflows.run.stages import prepare, run_stages, save_recipe, write_output


def prepare_here(assignment: Assignment) -> None:
    """Run the stages before training that are not done, with this process as the client of the cluster.

    Raises:
        GnnloomError: a stage failed, or the vertex data do not fit the training.
    """
    if assignment.workload.needs_preparation:
        with open_cluster(assignment.cluster) as cluster:
            prepare(assignment, cluster)


def train_here(assignment: Assignment) -> None:
    """Run the training stages that are not done, then write the output file.

    Raises:
        ExistsError: another process is writing the run.
        LaunchError: the ranks failed, or were stopped (:class:`~gnnloom.trainer.job.launch.StoppedError`).
        InputError, IncompleteError: the ranks found something wrong with what they read.
    """
    recipe, workload = assignment.recipe, assignment.workload

    def train() -> None:
        # Before the ranks start, as they hold the run's lock until they end.
        save_recipe(assignment)
        launch(workload.config, restart=assignment.restart)

    def predict() -> None:
        dataset = Catalog(recipe.catalog)[recipe.dataset.name]
        embeddings = bool(recipe.predict and recipe.predict.embeddings)
        launch_prediction(dataset, workload.config.run_name, embeddings=embeddings)

    run_stages(workload.training, {"train": train, "predict": predict})
    write_output(assignment)
