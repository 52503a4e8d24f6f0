"""What an epoch computes, one class per mode; the loop asks one for each epoch's gradients. Descriptors: ``modes``."""
