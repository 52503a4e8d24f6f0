"""Communication between ranks: the ``Communicator`` protocol, its transports, counted traffic and the process grid.

Imports ``storage`` only; nothing else of the trainer.  A new transport is one file here that implements
:class:`gnnloom.trainer.comm.communicator.Communicator`, as ``mpi.py`` does.
"""
