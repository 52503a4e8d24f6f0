"""The external two-pass bucket sort from edges in any order to stored CSR blocks, and the transpose.

Imports ``external_sort`` and ``tasks``; its callers pass in how ids are renumbered.
"""
