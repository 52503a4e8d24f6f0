"""What can be configured of a training run: frozen dataclasses, checked where they are built.

Imports neither torch nor MPI, so that the command line starts quickly.
"""
