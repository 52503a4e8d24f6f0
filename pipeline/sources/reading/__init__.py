"""Parsing shared by the file formats: lines, numerals, names, columns, compressed and binary files."""
