"""Finds damage: checksums, digests, and the invariants that every artifact and run must satisfy.

Imports the catalog, never the reverse. A new invariant goes into the file of the kind it constrains.
"""
