"""Runs a recipe: on ranks that this process starts, on the ranks of an MPI job, or as Slurm jobs.

May import `recipe`, `interop`, `pipeline` and `trainer`. `run_recipe.py` goes through the stages.
"""
