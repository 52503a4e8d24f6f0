"""The training loop on one rank, with its session, loss, metrics, optimizer, checkpoints and prediction.

Imports every other room of the trainer except ``job``. A new training mode is a module next to ``full_graph``; a new
optimizer, loss or metric goes into the module of that name.
"""
