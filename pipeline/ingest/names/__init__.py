"""Ids that are names: an external sort finds the distinct names, and the rank of a name becomes its number.

Files only: ``collect`` writes sorted names per range, ``merge`` ranks them, ``numbered`` reads the edges by number, and
``arrays`` stores the names along with the graph.
"""
