"""Finds damage: checksums, digests, and the invariants that every artifact and run must satisfy.

Imports the catalog and ``storage.runs``; the catalog never imports this room. A new invariant goes into the file of the
kind of artifact that it constrains.
"""
