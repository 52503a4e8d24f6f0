"""The training loop on one rank, with its session, loss, metrics, optimizer, checkpoints and prediction.

Imports every other room of the trainer except ``job``. A new training mode goes into ``modes``; a new optimizer, loss
or metric goes into the module of that name.
"""
