"""The transports between ranks: one file with one ``TRANSPORT`` each.

Loads neither torch nor the library of a transport before a process joins as a rank. ``$GNNLOOM_TRANSPORT`` names the
transport of a job, by default ``mpi``. To add one, add a file here (or in another package, with an entry point of the
group ``gnnloom.transports``); its class implements :class:`gnnloom.trainer.comm.communicator.Communicator`.
"""
