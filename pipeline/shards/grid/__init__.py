"""Grid shards: blocks of the permuted matrix, and vertex data in the permuted orders."""

from __future__ import annotations
