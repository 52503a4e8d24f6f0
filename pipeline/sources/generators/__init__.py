"""Synthetic graphs and vertex data, computed range by range, without a file.

Imports neither ``reading`` nor a format. To add a generator, add one file that holds a
:class:`~gnnloom.pipeline.sources.generators.generator.Generator` named ``GENERATOR``.
"""
