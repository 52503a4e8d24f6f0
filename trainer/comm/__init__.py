"""Communication between ranks: the ``Communicator`` protocol, its transports, counted traffic and the process grid.

Imports ``storage`` and ``place``; nothing else of the trainer. The transports are in ``transports``.
"""
