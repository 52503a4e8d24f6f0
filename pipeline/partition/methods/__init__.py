"""One file per partitioner, each with its descriptor as the constant ``PARTITIONER``.

To add a partitioner, add a file here, or announce the constant in another package by an entry point of the group
``gnnloom.partitioners``; everything else is derived from it.  A file may import everything below in
``pipeline.partition``; it imports heavy modules inside its functions, and no other file of this room.
"""
