"""The state of a training run, in memory and in checkpoints: parameters, buffers and the optimizer."""
