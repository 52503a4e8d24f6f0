"""Places of a rank's tensors: their device, memory and dtypes, the threads that compute them, and random numbers.

Imports torch and nothing else of the trainer. Another device is a change here, in ``kernels`` and in ``comm``; all
other rooms make their tensors through :class:`gnnloom.trainer.place.place.Place`.
"""
