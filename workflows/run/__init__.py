"""Runs a recipe: on ranks that this process starts, on the ranks of an MPI job, or as Slurm jobs.

``run_recipe.py`` has the whole run: it checks the request, runs the stages before training on a cluster, which
``cluster_of_ranks.py`` makes of the ranks of a job, and then lets the ranks train and predict. May import `recipe`,
`interop`, `pipeline` and `trainer`.
"""
