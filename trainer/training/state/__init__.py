"""The state of a training, and what is stored of it: parameters, buffers, the optimizer, checkpoints."""
