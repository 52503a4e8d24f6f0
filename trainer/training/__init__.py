"""The training loop and what surrounds it: session, loss, optimizer, checkpoints, prediction."""
