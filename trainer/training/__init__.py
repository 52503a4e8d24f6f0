"""The training loop on one rank: where it begins, its session, its course over the epochs, its record, and prediction.

Imports every other room of the trainer except ``job``. ``state`` has the optimizers and checkpoints, ``rehearsal`` the
memory that a training will take.
"""
