"""The ranks of a job: new ones, or those that this process belongs to; their arguments, signals and exit codes.

A command gets them from ``ranks.py``. Only ``in_place.py`` loads torch and MPI: all else also runs in the process that
starts ranks.
"""
