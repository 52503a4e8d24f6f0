"""Starting and ending a job: launching ranks, parsing their arguments, signals and exit codes.

Imports ``config``, and neither torch nor MPI: this code runs in the process that starts the ranks.
"""
