"""The training loop on one rank: its start, its session, its course over the epochs, its record, and prediction.

Imports every other room of the trainer except ``job``. ``state`` has the optimizers and checkpoints, ``rehearsal``
forecasts the memory of a training run.
"""
