"""Brings the rows of tables that name the vertex of each row, in any order, into the order of the vertices."""

from __future__ import annotations
