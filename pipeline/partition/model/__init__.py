"""The graph and hypergraph models of a matrix in memory, and what partitioners look up in them."""

from __future__ import annotations
