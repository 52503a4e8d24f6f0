"""Tables that name the vertex of each row: how their rows, in any order, reach the order of the vertices."""

from __future__ import annotations
