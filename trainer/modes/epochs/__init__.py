"""The modes of training, one class per file; the loop asks one for each epoch's gradients. Descriptors: ``modes``."""
