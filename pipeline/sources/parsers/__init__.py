"""Compiled parsers of lines: numbers, names, statements of RDF. Each gives the position and the kind of a fault."""
