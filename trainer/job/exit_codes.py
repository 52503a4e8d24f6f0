"""Exit codes of a rank, in addition to those of the errors."""

#: The run was asked to stop and can be resumed (EX_TEMPFAIL).
EXIT_STOPPED = 75
