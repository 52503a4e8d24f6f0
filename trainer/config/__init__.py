"""The configuration of a run: one frozen dataclass per component, each checked where it is built.

Imports neither torch nor MPI, so that the command line starts quickly. Add an option as a field of the component that
it belongs to; its help text, checks and command-line options follow from the field.
"""
