"""Running a recipe: on this machine, inside an MPI job, or as Slurm jobs.

May import `recipe`, `interop`, `pipeline` and `trainer`. The stages themselves are in `stages.py`; to add a way to run
them, add one file here.
"""
