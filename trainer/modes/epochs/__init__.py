"""Computes epochs, one class per mode; the loop asks it for each epoch's gradients. Descriptors: ``modes``."""
