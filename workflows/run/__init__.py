"""Running a recipe: on this machine, inside an MPI job, or as Slurm jobs."""
