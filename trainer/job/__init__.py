"""The ranks of a job: new ones, or the ranks of the current job; their arguments, signals and exit codes.

A command gets them from ``ranks.py``. Only ``in_place.py`` loads torch and MPI: everything else also runs in the
process that starts ranks.
"""
