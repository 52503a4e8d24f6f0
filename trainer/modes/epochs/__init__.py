"""Computes epochs, one class per mode; the training loop calls it once per epoch. Descriptors are in ``modes``."""
