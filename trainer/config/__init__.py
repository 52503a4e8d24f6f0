"""The configuration of a run: one frozen dataclass per component, checked when it is built.

``TrainConfig`` is composed of parts, and an option is a field of its part: ``config.algorithm`` (also the ranks and
threads), ``data``, ``mode`` (also the inputs and preparation of a mode), ``model``, ``optimization``, ``task``,
``stopping`` and ``run``. Options have the names of their fields, except that ``config.model.name`` is the option
``model``, and likewise of ``algorithm``, ``mode``, ``task`` and ``run``. Commands, recipes and stored runs know options
by name only: ``TrainConfig.of(lr=0.1, ...)`` and ``config.with_options(lr=0.1)`` find the part. ``combination.py``
    decides which parts can be combined.

Imports neither torch nor MPI, so that the command line starts quickly. Add an option as a field of its component; its
help text, checks and command-line options follow from the field.
"""
